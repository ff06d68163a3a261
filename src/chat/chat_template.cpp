#include "chat/chat_template.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "chat/parser.h"
#include "chat/renderer.h"

namespace focus {

namespace {

using nlohmann::ordered_json;

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

ordered_json read_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kConfigFile;
  if (!std::filesystem::exists(file)) return ordered_json::object();
  ordered_json config = parse_json<ordered_json>(read_file(file), file.string());
  require(config.is_object(), "{}: not a JSON object", file.string());
  return config;
}

/// A token is given as its text or as an object with `content`.
std::optional<std::string> token_text(const ordered_json& config, const char* name) {
  const auto found = config.find(name);
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  const bool has_content = found->is_object() && found->contains("content") && (*found)["content"].is_string();
  return has_content ? std::optional((*found)["content"].get<std::string>()) : std::nullopt;
}

/// `chat_template`: a text, or a list of {"name", "template"}.
std::string template_text(const ordered_json& config, const std::filesystem::path& folder) {
  const auto found = config.find("chat_template");
  require(found != config.end() && !found->is_null(), "{}: the model has no chat template ({} or chat_template in {})",
          folder.string(), kTemplateFile, kConfigFile);
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const ordered_json& entry : *found) {
      const bool fits = entry.is_object() && entry.contains("name") && entry["name"] == "default" &&
                        entry.contains("template") && entry["template"].is_string();
      if (fits) return entry["template"].get<std::string>();
    }
  }
  fail("{}: chat_template is neither a text nor a list with one called 'default'", (folder / kConfigFile).string());
}

}  // namespace

struct ChatTemplate::Parsed {
  jinja::Body body;
};

ChatTemplate::ChatTemplate(const std::string& source, ordered_json variables, std::string name)
    : variables_(std::move(variables)), name_(std::move(name)) {
  try {
    parsed_ = std::make_shared<const Parsed>(Parsed{jinja::parse(source)});
  } catch (const Error& e) {
    fail("{}: {}", name_, e.what());
  }
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder) {
  const ordered_json config = read_config(folder);
  ordered_json variables = ordered_json::object();
  for (const char* name : kSpecialTokens) {
    if (const auto text = token_text(config, name)) variables[name] = *text;
  }
  const std::filesystem::path file = folder / kTemplateFile;
  if (std::filesystem::exists(file)) return {read_file(file), std::move(variables), file.string()};
  return {template_text(config, folder), std::move(variables), (folder / kConfigFile).string() + ": chat_template"};
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const {
  ordered_json list = ordered_json::array();
  for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  return render({{"messages", std::move(list)},
                 {"tools", nullptr},
                 {"documents", nullptr},
                 {"add_generation_prompt", add_generation_prompt}});
}

std::string ChatTemplate::render(const ordered_json& variables) const {
  jinja::Dict scope;
  for (const auto& [name, value] : variables_.items()) scope.set(name, jinja::Value::from_json(value));
  for (const auto& [name, value] : variables.items()) scope.set(name, jinja::Value::from_json(value));
  try {
    return jinja::render(parsed_->body, scope);
  } catch (const Error& e) {
    fail("{}: {}", name_, e.what());
  }
}

std::optional<std::string> special_token(const std::filesystem::path& folder, const std::string& name) {
  return token_text(read_config(folder), name.c_str());
}

}  // namespace focus

#include "cli/prompts.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/log.h"

namespace focus {

std::vector<std::string> read_prompts(const std::filesystem::path& file) {
  const std::string content = read_file(file);
  const bool json_lines = file.extension() == ".jsonl";
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    std::string line = content.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (json_lines) {
      const nlohmann::json entry = parse_json(line, fmt::format("{}, line {}", file.string(), number));
      require(entry.is_object() && entry.contains("prompt") && entry["prompt"].is_string(),
              "{}, line {}: an object with a text \"prompt\" was expected", file.string(), number);
      line = entry["prompt"].get<std::string>();
    }
    prompts.push_back(std::move(line));
  }
  require(!prompts.empty(), "{}: there is no prompt in it", file.string());
  return prompts;
}

PromptEncoder::PromptEncoder(const Session& session, const std::filesystem::path& model, bool chat,
                             std::optional<std::string> system)
    : session_(session), system_(std::move(system)) {
  if (chat) template_ = ChatTemplate::load(model);
}

Prompt PromptEncoder::encode(const std::string& text) const {
  Prompt prompt{text, {}};
  if (template_) {
    std::vector<ChatMessage> messages;
    if (system_) messages.push_back({"system", *system_});
    messages.push_back({"user", text});
    prompt.ids = session_.tokenizer.encode(template_->render(messages), /*add_special_tokens=*/false);
    return prompt;
  }
  prompt.ids = session_.tokenizer.encode(text, /*add_special_tokens=*/true);
  const std::optional<int64_t> bos = session_.model->config().bos_id;
  if (bos && prompt.ids.size() >= 2 && prompt.ids[0] == *bos && prompt.ids[1] == *bos) {
    log_warning("the prompt brings its own beginning-of-text token: only one is kept");
    prompt.ids.erase(prompt.ids.begin());
  }
  return prompt;
}

}  // namespace focus

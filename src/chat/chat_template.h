#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace focus {

/// One turn of a conversation.
struct ChatMessage {
  std::string role;  ///< system, user, assistant ...
  std::string content;
};

/// A model's chat template: a subset of Jinja as transformers runs it (trim_blocks, lstrip_blocks, loop controls).
/// Known are if, for (with else, a condition, break and continue), set (also of namespaces and blocks), expressions
/// with Python's operators, slices, the usual string and dict methods, filters and tests; not macros, imports,
/// inheritance, raw blocks, unpacking and tuples. What is not known is an Error that names it.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja, or `chat_template` of tokenizer_config.json (of several the one called "default"), and
  /// the special tokens of tokenizer_config.json, which templates may use. Throws Error naming the folder when there is
  /// no template, or the file that cannot be read.
  static ChatTemplate load(const std::filesystem::path& folder);
  /// A template given as text. `variables` are seen by it besides the messages; `name` is what messages call it. Throws
  /// Error naming the line.
  ChatTemplate(const std::string& source, nlohmann::ordered_json variables, std::string name = "chat template");

  /// The text of a conversation; with `add_generation_prompt` up to where the assistant's answer begins. It holds the
  /// special tokens that the model wants, so it is encoded without adding any.
  std::string render(const std::vector<ChatMessage>& messages, bool add_generation_prompt = true) const;
  /// As render(), of any variables on top of the template's own.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Parsed;
  std::shared_ptr<const Parsed> parsed_;
  nlohmann::ordered_json variables_;
  std::string name_;
};

/// The text of a special token such as "bos_token" or "eos_token" in a folder's tokenizer_config.json; nothing when the
/// file or the field is absent or null.
std::optional<std::string> special_token(const std::filesystem::path& folder, const std::string& name);

}  // namespace focus

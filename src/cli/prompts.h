#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "cli/session.h"

namespace focus {

/// A prompt as it was given and as the model sees it.
struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

/// Prompts of a file: of .jsonl the field "prompt" of each line, of others each line that is not empty. Throws Error
/// naming the file and line at fault, or that there is none.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

/// Turns prompts into ids, plainly or through the model's chat template.
class PromptEncoder {
 public:
  /// With `chat` a prompt is the user's message, after the `system` message if there is one. Throws Error when the
  /// model has no chat template.
  PromptEncoder(const Session& session, const std::filesystem::path& model, bool chat,
                std::optional<std::string> system);

  /// A plain prompt gets the special tokens that the tokenizer adds; one that brings its own beginning-of-text token
  /// keeps only that (with a warning). What a template renders is encoded as it is, as transformers does.
  Prompt encode(const std::string& text) const;

 private:
  const Session& session_;
  std::optional<ChatTemplate> template_;
  std::optional<std::string> system_;
};

}  // namespace focus

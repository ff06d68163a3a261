#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/json_node.h"

namespace focus {

/// The special tokens that a post-processor puts around one text.
struct SpecialTokens {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};

/// The post-processor of a tokenizer.json, for a single text: Sequence, TemplateProcessing, ByteLevel (which changes no
/// ids), BertProcessing, RobertaProcessing. Throws Error naming any other type, and for a template that does not
/// contain the text exactly once.
SpecialTokens read_post_processor(const JsonNode& node);

}  // namespace focus

#pragma once

#include <string>

#include "tokenizer/json_node.h"

namespace focus {

/// When Metaspace puts a mark before a text that has none: always, only where the whole text begins, never.
enum class PrependScheme { kAlways, kFirst, kNever };

struct MetaspaceSettings {
  std::string replacement;  // the one character that stands for a space
  PrependScheme scheme;
};

/// The fields that the pre-tokenizer and the decoder Metaspace share, the older "add_prefix_space" included. Throws
/// Error for values that are not known or contradict each other.
MetaspaceSettings read_metaspace(const JsonNode& node);

}  // namespace focus

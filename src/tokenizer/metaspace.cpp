#include "tokenizer/metaspace.h"

#include "tokenizer/unicode.h"

namespace focus {

MetaspaceSettings read_metaspace(const JsonNode& node) {
  MetaspaceSettings settings{node.text("replacement"), PrependScheme::kAlways};
  size_t first_end = 0;
  if (!settings.replacement.empty()) next_code_point(settings.replacement, first_end);
  require(first_end > 0 && first_end == settings.replacement.size(), "{}: replacement '{}' must be one character",
          node.where(), settings.replacement);
  const bool add_prefix_space = node.flag("add_prefix_space", true);
  if (!node.find("prepend_scheme")) {
    if (!add_prefix_space) settings.scheme = PrependScheme::kNever;
    return settings;
  }
  const std::string scheme = node.text("prepend_scheme");
  if (scheme == "first") {
    settings.scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    settings.scheme = PrependScheme::kNever;
  } else {
    require(scheme == "always", "{}: prepend_scheme '{}' is not supported (known: always, first, never)", node.where(),
            scheme);
  }
  require(add_prefix_space || settings.scheme == PrependScheme::kNever,
          "{}: add_prefix_space is false but prepend_scheme is '{}'", node.where(), scheme);
  return settings;
}

}  // namespace focus

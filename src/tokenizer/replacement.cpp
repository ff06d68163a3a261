#include "tokenizer/replacement.h"

namespace focus {

namespace {

std::optional<std::string> read_literal(const JsonNode& component) {
  const JsonNode pattern = component.child("pattern");
  if (!pattern.find("String")) return std::nullopt;
  std::string literal = pattern.text("String");
  require(!literal.empty(), "{}: the pattern is empty", pattern.where());
  return literal;
}

}  // namespace

Regex read_pattern(const JsonNode& component) {
  const JsonNode pattern = component.child("pattern");
  if (const std::optional<std::string> literal = read_literal(component)) {
    return Regex(Regex::escape(*literal), pattern.where());
  }
  require(pattern.find("Regex").has_value(), "{}: expected {{\"String\": ...}} or {{\"Regex\": ...}}", pattern.where());
  return Regex(pattern.text("Regex"), pattern.where());
}

Replacement::Replacement(const JsonNode& component) : content_(component.text("content")) {
  if (std::optional<std::string> literal = read_literal(component)) {
    literal_ = std::move(*literal);
  } else {
    regex_ = read_pattern(component);
  }
}

std::string Replacement::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  if (regex_) {
    regex_->for_each_stretch(text, [&](size_t begin, size_t end, bool is_match) {
      out += is_match ? std::string_view(content_) : text.substr(begin, end - begin);
    });
    return out;
  }
  size_t done = 0;
  for (size_t found = 0; (found = text.find(literal_, done)) != std::string_view::npos;
       done = found + literal_.size()) {
    out += text.substr(done, found - done);
    out += content_;
  }
  out += text.substr(done);
  return out;
}

}  // namespace focus

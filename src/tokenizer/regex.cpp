#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include <array>

#include "tokenizer/unicode.h"

namespace focus {

namespace {

// PCRE2's own \s also takes U+180E, which lost the property White_Space in Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += class_depth > 0 ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (escaped == 'S' && class_depth == 0) {
        out += fmt::format("[^{}]", kSpaces);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[' && class_depth == 0) {
      class_depth = 1;
    } else if (c == ']' && class_depth > 0) {
      class_depth = 0;
    }
    out += c;
  }
  return out;
}

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

Regex::Regex(std::string_view pattern, const std::string& where) : code_(nullptr, &pcre2_code_free), where_(where) {
  const std::string translated = with_unicode_spaces(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                            context.get()));
  require(code_ != nullptr, "{}: regular expression '{}' is not valid: {}", where, pattern, error_text(error));
  // Without JIT support the interpreter is used, with the same result.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::string Regex::escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(R"(\^$.|?*+()[]{}-#&~ )").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Regex::Scan::Scan(const Regex& regex, std::string_view text)
    : regex_(&regex),
      text_(text),
      data_(pcre2_match_data_create_from_pattern(regex.code_.get(), nullptr), &pcre2_match_data_free) {
  require(data_ != nullptr, "{}: out of memory", regex.where_);
}

std::optional<Regex::Match> Regex::Scan::next() {
  while (position_ <= text_.size()) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
    const auto run = [&](uint32_t options) {
      return pcre2_match(regex_->code_.get(), subject, text_.size(), position_, PCRE2_NO_UTF_CHECK | options,
                         data_.get(), nullptr);
    };
    int result = run(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) {
      position_ = text_.size() + 1;
      return std::nullopt;
    }
    require(result >= 0, "{}: regular expression failed on a text of {} bytes: {}", regex_->where_, text_.size(),
            result < 0 ? error_text(result) : "");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
    const Match match{ends[0], ends[1]};
    if (match.begin < match.end) {
      position_ = match.end;
      last_end_ = match.end;
      return match;
    }
    // An empty match directly behind the last match does not count; the search goes on one character further.
    position_ = match.end;
    if (position_ < text_.size()) {
      next_code_point(text_, position_);
    } else {
      ++position_;
    }
    if (last_end_ != match.end) {
      last_end_ = match.end;
      return match;
    }
  }
  return std::nullopt;
}

}  // namespace focus

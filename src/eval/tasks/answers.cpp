#include "eval/tasks/answers.h"

#include <algorithm>

namespace focus {

namespace {

constexpr const char* kInvalid = "[invalid]";
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kNumber = "0123456789.,";
constexpr std::string_view kMoney = "$0123456789.,";

/// Characters from `begin` on that are in `set`.
size_t run(std::string_view text, size_t begin, std::string_view set) {
  return std::min(text.find_first_not_of(set, begin), text.size()) - begin;
}

std::string normalized(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ',' && c != '$') out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
  }
  const size_t mark = out.rfind("#### ");
  if (mark != std::string::npos) out.erase(0, mark + 5);
  if (out.ends_with('.')) out.pop_back();
  return out;
}

}  // namespace

std::string_view before_stops(std::string_view text, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) text = text.substr(0, text.find(stop));
  return text;
}

std::string strict_answer(std::string_view text) {
  constexpr std::string_view kPhrase = "The answer is ";
  for (size_t at = text.find(kPhrase); at != std::string_view::npos; at = text.find(kPhrase, at + 1)) {
    const size_t begin = at + kPhrase.size();
    const size_t sign = begin < text.size() && text[begin] == '-' ? 1 : 0;
    size_t length = run(text, begin + sign, kNumber);
    const size_t end = begin + sign + length;
    // One more character has to follow: where none does, the number gives up its last.
    if (end == text.size() || text[end] == '\n') length = length > 0 ? length - 1 : 0;
    if (length > 0) return std::string(text.substr(begin, sign + length));
  }
  return kInvalid;
}

std::string flexible_answer(std::string_view text) {
  std::string_view last = kInvalid;
  for (size_t i = 0; i < text.size();) {
    const size_t sign = text[i] == '-' ? 1 : 0;
    size_t length = run(text, i + sign, kMoney);
    if (length < 2) length = run(text, i + sign, kDigits);
    if (length > 0) {
      last = text.substr(i, sign + length);
      i += sign + length;
    } else {
      ++i;
    }
  }
  return std::string(last);
}

bool answers_match(std::string_view answer, std::string_view reference) {
  return normalized(answer) == normalized(reference);
}

}  // namespace focus

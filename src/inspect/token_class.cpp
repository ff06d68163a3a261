#include "inspect/token_class.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct WordList {
  TokenClass kind;
  std::vector<std::string_view> words;
};

const std::unordered_map<std::string_view, TokenClass>& function_words() {
  static const std::unordered_map<std::string_view, TokenClass> words = [] {
    const WordList lists[] = {
        {TokenClass::kDeterminer,
         {"the",   "a",    "an",    "this", "these", "those",  "my",      "your",    "his",     "its",  "our",
          "their", "some", "any",   "each", "every", "no",     "all",     "both",    "another", "such", "many",
          "much",  "few",  "other", "more", "most",  "either", "neither", "several", "own"}},
        {TokenClass::kPreposition,
         {"of",      "in",     "to",     "for",    "with",    "on",      "at",    "from",    "by",     "about",
          "into",    "over",   "after",  "before", "under",   "between", "out",   "through", "during", "without",
          "against", "among",  "upon",   "toward", "towards", "up",      "down",  "off",     "around", "near",
          "behind",  "beside", "within", "beyond", "across",  "along",   "above", "below"}},
        {TokenClass::kConnective,
         {"and", "or",      "but",     "that",  "which",  "who",      "whom",  "whose",   "when",     "where", "while",
          "if",  "because", "as",      "since", "though", "although", "than",  "so",      "nor",      "yet",   "what",
          "why", "how",     "whether", "until", "unless", "then",     "there", "however", "therefore"}},
        {TokenClass::kPronoun,
         {"i",         "you",        "he",        "she",        "it",      "we",       "they",   "me",
          "him",       "her",        "us",        "them",       "himself", "herself",  "itself", "myself",
          "yourself",  "themselves", "ourselves", "mine",       "yours",   "hers",     "theirs", "one",
          "something", "anything",   "nothing",   "everything", "someone", "everyone", "nobody"}},
        {TokenClass::kAuxiliary,
         {"is",    "was",    "are",   "were", "be",  "been", "being",  "am",    "has",    "have",
          "had",   "having", "do",    "does", "did", "will", "would",  "shall", "should", "can",
          "could", "may",    "might", "must", "not", "n't",  "cannot", "never"}},
    };
    std::unordered_map<std::string_view, TokenClass> result;
    for (const WordList& list : lists) {
      for (const std::string_view word : list.words) result.emplace(word, list.kind);
    }
    return result;
  }();
  return words;
}

std::vector<char32_t> code_points(std::string_view text) {
  std::vector<char32_t> result;
  for (size_t at = 0; at < text.size();) result.push_back(next_code_point(text, at));
  return result;
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word(next_code_point(text, at));
}

bool ends_with_word(std::string_view text) {
  const std::vector<char32_t> points = code_points(text);
  return !points.empty() && is_word(points.back());
}

std::string lower_case(std::span<const char32_t> points) {
  std::string result;
  for (const char32_t point : points) append_lower_case(result, point);
  return result;
}

bool is_apostrophe(char32_t point) {
  return point == U'\'' || point == U'\u2019';
}

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

}  // namespace

const std::array<const char*, kTokenClasses>& token_class_names() {
  static const std::array<const char*, kTokenClasses> names = {"space",       "punctuation", "digits",  "determiner",
                                                               "preposition", "connective",  "pronoun", "auxiliary",
                                                               "capitalised", "word piece",  "other"};
  return names;
}

TokenClass classify_token(std::string_view text, std::string_view previous, std::string_view next) {
  const std::vector<char32_t> points = code_points(text);
  const auto begin = std::find_if_not(points.begin(), points.end(), is_whitespace);
  const auto last = std::find_if_not(points.rbegin(), points.rend(), is_whitespace);
  if (begin == points.end()) return TokenClass::kSpace;
  const std::span<const char32_t> word(begin, last.base());
  if (std::find(word.begin(), word.end(), U'\uFFFD') != word.end()) return TokenClass::kOther;
  if (std::all_of(word.begin(), word.end(), is_numeric)) return TokenClass::kDigits;
  if (std::none_of(word.begin(), word.end(), is_word)) return TokenClass::kPunctuation;
  const bool spaced = begin != points.begin();
  if (!spaced && ends_with_word(previous) && (is_word(word.front()) || is_apostrophe(word.front()))) {
    return TokenClass::kPiece;
  }
  const bool whole = word.size() != static_cast<size_t>(points.end() - begin) || !starts_with_word(next);
  if (whole) {
    const auto found = function_words().find(lower_case(word));
    if (found != function_words().end()) return found->second;
  }
  std::string first;
  append_utf8(first, word.front());
  if (lower_case(word.first(1)) != first) return TokenClass::kCapitalised;
  return whole ? TokenClass::kOther : TokenClass::kPiece;
}

TokenTexts::TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  entries_.resize(static_cast<size_t>(tokenizer.vocab_size()));
  anchor_ = tokenizer.encode("a", /*add_special_tokens=*/false);
  anchor_text_ = tokenizer.decode(anchor_, /*skip_special_tokens=*/false);
}

const TokenTexts::Entry& TokenTexts::entry(int32_t id) {
  require(id >= 0 && id < std::ssize(entries_), "token id {} is outside the tokenizer's vocabulary of {}", id,
          entries_.size());
  Entry& entry = entries_[static_cast<size_t>(id)];
  if (entry.known) return entry;
  entry.known = true;
  const std::string& token = tokenizer_.token_of(id);
  if (tokenizer_.is_special(id)) {
    entry.text = entry.label = to_valid_utf8(token);
    return entry;
  }
  std::vector<int32_t> ids = anchor_;
  ids.push_back(id);
  const std::string both = tokenizer_.decode(ids, /*skip_special_tokens=*/false);
  entry.text = to_valid_utf8(both.starts_with(anchor_text_)
                                 ? both.substr(anchor_text_.size())
                                 : tokenizer_.decode(std::span(&id, 1), /*skip_special_tokens=*/false));
  entry.label = entry.text;
  if (entry.text.find(kReplacement) == std::string::npos || token.find(kReplacement) != std::string::npos) return entry;
  entry.label.clear();
  if (is_byte_token(token)) {
    entry.label = token;
  } else {
    for (const char byte : from_byte_chars(token)) {
      entry.label += fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte));
    }
  }
  return entry;
}

const std::string& TokenTexts::text(int32_t id) {
  return entry(id).text;
}

const std::string& TokenTexts::label(int32_t id) {
  return entry(id).label;
}

std::vector<TokenClass> TokenTexts::classes(std::span<const int32_t> ids) {
  std::vector<TokenClass> result(ids.size(), TokenClass::kOther);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (tokenizer_.is_special(ids[t])) continue;
    const auto neighbour = [&](int32_t id) {
      return tokenizer_.is_special(id) ? std::string_view() : std::string_view(text(id));
    };
    result[t] = classify_token(text(ids[t]), t > 0 ? neighbour(ids[t - 1]) : std::string_view(),
                               t + 1 < ids.size() ? neighbour(ids[t + 1]) : std::string_view());
  }
  return result;
}

}  // namespace focus

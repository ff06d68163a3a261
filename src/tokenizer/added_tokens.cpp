#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace focus {

namespace {

size_t last_char_begin(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t position = last_char_begin(text, text.size());
  return is_word(next_code_point(text, position));
}

bool starts_with_word(std::string_view text) {
  size_t position = 0;
  return !text.empty() && is_word(next_code_point(text, position));
}

size_t before_trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = last_char_begin(text, end);
    size_t position = begin;
    if (!is_whitespace(next_code_point(text, position))) break;
    end = begin;
  }
  return end;
}

size_t leading_space(std::string_view text) {
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    if (!is_whitespace(next_code_point(text, position))) return begin;
  }
  return text.size();
}

AddedToken read_added_token(const JsonNode& node, int64_t limit) {
  const int64_t id = node.integer("id");
  require(id >= 0 && id < limit, "{}: the id {} is out of range (0 to {} here)", node.where(), id, limit - 1);
  AddedToken token{};
  token.id = static_cast<int32_t>(id);
  token.content = node.text("content");
  require(!token.content.empty(), "{}: the content is empty", node.where());
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

}  // namespace

StringTrie::StringTrie() : nodes_(1), roots_(256, -1) {}

const int32_t* StringTrie::child(const Node& node, unsigned char byte) const {
  const auto found =
      std::find_if(node.children.begin(), node.children.end(), [&](const auto& entry) { return entry.first == byte; });
  return found == node.children.end() ? nullptr : &found->second;
}

void StringTrie::add(std::string_view text, int32_t value) {
  int32_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const int32_t* next = child(nodes_[static_cast<size_t>(at)], byte);
    if (next != nullptr) {
      at = *next;
      continue;
    }
    const auto created = static_cast<int32_t>(nodes_.size());
    nodes_[static_cast<size_t>(at)].children.emplace_back(byte, created);
    if (at == 0) roots_[byte] = created;
    nodes_.emplace_back();
    at = created;
  }
  int32_t& slot = nodes_[static_cast<size_t>(at)].value;
  if (slot < 0) slot = value;
}

std::optional<StringTrie::Match> StringTrie::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t at = roots_[static_cast<unsigned char>(text[begin])];
    if (at < 0) continue;
    std::optional<Match> match;
    for (size_t end = begin + 1;; ++end) {
      const Node& node = nodes_[static_cast<size_t>(at)];
      if (node.value >= 0) match = Match{begin, end, node.value};
      if (end == text.size()) break;
      const int32_t* next = child(node, static_cast<unsigned char>(text[end]));
      if (next == nullptr) break;
      at = *next;
    }
    if (match) return match;
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(const JsonNode& file, const Vocabulary& vocabulary, const Normalizer* normalizer) {
  if (!file.find("added_tokens")) return;
  const std::vector<JsonNode> nodes = file.items("added_tokens");
  tokens_.reserve(nodes.size());  // by_content_ points into the elements
  const auto limit = static_cast<int64_t>(vocabulary.size() + nodes.size()) + kMaxGaps;
  for (const JsonNode& node : nodes) {
    const size_t index = tokens_.size();
    AddedToken& token = tokens_.emplace_back(read_added_token(node, limit));
    require(by_content_.emplace(token.content, index).second, "{}: token '{}' is given twice", node.where(),
            token.content);
    require(by_id_.emplace(token.id, index).second, "{}: id {} is given twice", node.where(), token.id);
    const std::optional<int32_t> known = vocabulary.find(token.content);
    require(!known || *known == token.id, "{}: token '{}' has the id {}, but {} in the vocabulary", node.where(),
            token.content, token.id, known.value_or(-1));
    const std::string* other = vocabulary.token(token.id);
    require(other == nullptr || *other == token.content,
            "{}: the id {} of token '{}' belongs to '{}' in the vocabulary", node.where(), token.id, token.content,
            other != nullptr ? *other : "");
    token.text = token.content;
    if (token.normalized) {
      if (normalizer != nullptr) normalizer->apply(token.text);
      if (!token.text.empty()) normalized_.add(token.text, static_cast<int32_t>(index));
      has_normalized_ = true;
    } else {
      plain_.add(token.content, static_cast<int32_t>(index));
      has_plain_ = true;
    }
  }
}

std::vector<AddedTokenSpan> AddedTokens::split(std::string_view text, bool normalized) const {
  const StringTrie& trie = normalized ? normalized_ : plain_;
  std::vector<AddedTokenSpan> spans;
  size_t done = 0;
  size_t from = 0;
  while (const std::optional<StringTrie::Match> match = trie.find(text, from)) {
    from = match->end;
    const AddedToken& token = tokens_[static_cast<size_t>(match->value)];
    size_t begin = match->begin;
    size_t end = match->end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(before_trailing_space(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) spans.push_back({-1, done, begin});
    spans.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) spans.push_back({-1, done, text.size()});
  return spans;
}

std::optional<int32_t> AddedTokens::find(std::string_view token) const {
  const auto found = by_content_.find(token);
  return found == by_content_.end() ? std::nullopt : std::optional<int32_t>(tokens_[found->second].id);
}

const AddedToken* AddedTokens::token(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace focus

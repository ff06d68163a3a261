#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace focus {

/// How far ids may go beyond the number of tokens. Published vocabularies have few or no gaps, and a wild id must not
/// make tables indexed by id huge.
constexpr int64_t kMaxGaps = 1'000'000;

/// Tokens and their ids, one to one. Ids may leave gaps.
class Vocabulary {
 public:
  /// Throws Error, beginning with `where`, for an id out of range and for a token or an id given twice.
  Vocabulary(std::vector<std::pair<std::string, int64_t>> tokens, const std::string& where);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::optional<int32_t> find(std::string_view token) const;
  /// The token of an id, or null.
  const std::string* token(int32_t id) const;
  /// One above the highest id.
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }
  const std::vector<std::pair<std::string, int64_t>>& tokens() const { return tokens_; }

 private:
  std::vector<std::pair<std::string, int64_t>> tokens_;  // owns the text that the two indices point to
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<const std::string*> by_id_;
};

}  // namespace focus

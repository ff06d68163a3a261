#include "tokenizer/vocabulary.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

Vocabulary::Vocabulary(std::vector<std::pair<std::string, int64_t>> tokens, const std::string& where)
    : tokens_(std::move(tokens)) {
  const int64_t limit = static_cast<int64_t>(tokens_.size()) + kMaxGaps;
  int64_t highest = -1;
  for (const auto& [token, id] : tokens_) {
    require(id >= 0 && id < limit, "{}: the id {} of token '{}' is out of range (0 to {} here)", where, id, token,
            limit - 1);
    highest = std::max(highest, id);
  }
  by_id_.resize(static_cast<size_t>(highest + 1));
  ids_.reserve(tokens_.size());
  for (const auto& [token, id] : tokens_) {
    require(ids_.emplace(token, static_cast<int32_t>(id)).second, "{}: token '{}' is given twice", where, token);
    const std::string*& slot = by_id_[static_cast<size_t>(id)];
    require(slot == nullptr, "{}: id {} is given to both '{}' and '{}'", where, id, slot ? *slot : "", token);
    slot = &token;
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

const std::string* Vocabulary::token(int32_t id) const {
  return id >= 0 && id < size() ? by_id_[static_cast<size_t>(id)] : nullptr;
}

}  // namespace focus

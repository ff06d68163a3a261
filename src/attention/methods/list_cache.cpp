#include "attention/methods/list_cache.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

ListCache::ListCache(int64_t batch, int64_t capacity) : kv_(batch, capacity), batch_(batch) {}

void ListCache::append(const at::Tensor& k, const at::Tensor& v, const at::Tensor& key_group) {
  require(key_group.dim() == 3 && key_group.size(0) == batch_ && key_group.size(2) == k.size(2) &&
              key_group.scalar_type() == at::kInt,
          "cache: key_group must be int32 [{}, sets, {}]", batch_, k.size(2));
  require(sets_ == 0 || key_group.size(1) == sets_, "cache: key_group of {} list sets, those held have {}",
          key_group.size(1), sets_);
  const int64_t first = kv_.length();
  kv_.append(k, v);
  sets_ = key_group.size(1);
  groups_.resize(static_cast<size_t>(batch_ * sets_));
  members_.resize(static_cast<size_t>(batch_ * sets_));
  const at::Tensor rows = key_group.to(at::kCPU).contiguous();
  const int64_t tokens = rows.size(2);
  const int32_t* data = rows.const_data_ptr<int32_t>();
  for (size_t s = 0; s < groups_.size(); ++s) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int32_t list = *data++;
      groups_[s].push_back(list);
      if (list < 0) continue;
      auto& lists = members_[s];
      if (static_cast<size_t>(list) >= lists.size()) lists.resize(static_cast<size_t>(list) + 1);
      lists[static_cast<size_t>(list)].push_back(static_cast<int32_t>(first + t));
    }
  }
}

at::Tensor ListCache::key_group() const {
  at::Tensor result = at::empty({batch_, sets_, length()}, at::kInt);
  int32_t* out = result.data_ptr<int32_t>();
  for (const auto& row : groups_) out = std::copy(row.begin(), row.end(), out);
  return result;
}

const std::vector<int32_t>& ListCache::members(int64_t batch, int64_t set, int64_t list) const {
  static const std::vector<int32_t> kNone;
  const auto& lists = members_[static_cast<size_t>(batch * sets_ + set)];
  return static_cast<size_t>(list) < lists.size() ? lists[static_cast<size_t>(list)] : kNone;
}

KeyChoice ListCache::choose(int64_t batch, int64_t set, const int32_t* probes, int64_t slots, int64_t first,
                            int64_t near) const {
  KeyChoice choice{{}, near, length()};
  for (int64_t p = 0; p < slots; ++p) {
    if (probes[p] < 0) continue;
    const std::vector<int32_t>& list = members(batch, set, probes[p]);
    const auto from = std::lower_bound(list.begin(), list.end(), first);
    choice.scattered.insert(choice.scattered.end(), from, std::lower_bound(from, list.end(), near));
  }
  return choice;
}

int64_t ListCache::bytes() const {
  size_t ids = 0;
  for (const auto& row : groups_) ids += row.capacity();
  for (const auto& lists : members_) {
    for (const auto& list : lists) ids += list.capacity();
  }
  return kv_.bytes() + static_cast<int64_t>(ids * sizeof(int32_t));
}

void ListCache::truncate(int64_t length) {
  kv_.truncate(length);
  const auto kept = static_cast<size_t>(kv_.length());
  for (size_t s = 0; s < groups_.size(); ++s) {
    while (groups_[s].size() > kept) {
      const int32_t list = groups_[s].back();
      if (list >= 0) members_[s][static_cast<size_t>(list)].pop_back();
      groups_[s].pop_back();
    }
  }
}

}  // namespace focus

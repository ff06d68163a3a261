#include "data/token_source.h"

#include <algorithm>

namespace focus {

int64_t TokenSource::tokens() const {
  int64_t total = 0;
  for (int64_t d = 0; d < documents(); ++d) total += length(d);
  return total;
}

Document TokenSource::document(int64_t index, int64_t most) const {
  Document result(static_cast<size_t>(std::min(most, length(index))));
  read(index, 0, result);
  return result;
}

void MemoryTokens::read(int64_t document, int64_t begin, std::span<int32_t> out) const {
  std::copy_n(documents_[document].begin() + begin, out.size(), out.begin());
}

uint64_t MemoryTokens::fingerprint() const {
  uint64_t state = kHashStart;
  for (const Document& document : documents_) {
    const auto length = static_cast<int32_t>(document.size());
    state = hash_values(document, hash_values(std::span(&length, 1), state));
  }
  return state;
}

std::vector<Document> sample_documents(const TokenSource& source, int64_t count, int64_t most) {
  std::vector<Document> sample;
  const int64_t taken = std::min(count, source.documents());
  for (int64_t i = 0; i < taken; ++i) sample.push_back(source.document(source.documents() * i / taken, most));
  return sample;
}

uint64_t hash_values(std::span<const int32_t> values, uint64_t state) {
  for (const int32_t value : values) state = (state ^ static_cast<uint32_t>(value)) * 0x100000001B3u;
  return state;
}

}  // namespace focus

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace focus {

/// One document as token ids, with its beginning-of-sequence id if the model wants one.
using Document = std::vector<int32_t>;

/// Documents as tokens, wherever they are kept. Safe to read from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t documents() const = 0;
  /// Tokens of a document.
  virtual int64_t length(int64_t document) const = 0;
  /// Copies the tokens from `begin` on that fill `out`. Throws Error when what is stored is damaged.
  virtual void read(int64_t document, int64_t begin, std::span<int32_t> out) const = 0;
  /// A number that other tokens, or other borders between documents, would change.
  virtual uint64_t fingerprint() const = 0;

  int64_t tokens() const;
  /// A whole document, or its first `most` tokens.
  Document document(int64_t index, int64_t most) const;
};

/// Documents in memory.
class MemoryTokens : public TokenSource {
 public:
  explicit MemoryTokens(std::span<const Document> documents) : documents_(documents.begin(), documents.end()) {}
  explicit MemoryTokens(std::vector<Document>&& documents) : documents_(std::move(documents)) {}

  int64_t documents() const override { return std::ssize(documents_); }
  int64_t length(int64_t document) const override { return std::ssize(documents_[document]); }
  void read(int64_t document, int64_t begin, std::span<int32_t> out) const override;
  uint64_t fingerprint() const override;

 private:
  std::vector<Document> documents_;
};

/// Some documents from all over a source, at most `count`, each cut to `most` tokens: enough for a probe.
std::vector<Document> sample_documents(const TokenSource& source, int64_t count, int64_t most);

/// FNV-1a over further values.
uint64_t hash_values(std::span<const int32_t> values, uint64_t state);
inline constexpr uint64_t kHashStart = 0xCBF29CE484222325u;

}  // namespace focus

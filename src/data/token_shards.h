#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/token_source.h"

namespace focus {

/// What tokens in shards were made with (docs/formats.md).
struct TokenFormat {
  int64_t vocab_size = 0;       ///< All ids are below.
  uint64_t tokenizer_hash = 0;  ///< tokenizer_hash() of the tokenizer's file.
};

/// A number that another tokenizer.json (in a model's folder, or the file itself) would change. Throws Error.
uint64_t tokenizer_hash(const std::filesystem::path& file_or_folder);

/// Writes a folder of shards, each of about `shard_tokens` tokens (documents are not divided), 2 bytes a token where
/// the vocabulary allows. The folder appears when all is written.
class TokenShardWriter {
 public:
  /// Throws Error when the folder cannot be made or there is something else of that name.
  TokenShardWriter(const std::filesystem::path& folder, const TokenFormat& format, int64_t shard_tokens);
  ~TokenShardWriter();
  /// Throws Error for an empty document and an id outside the vocabulary.
  void add(const Document& document);
  /// Writes what is left and makes the folder appear; returns the number of shards. Throws Error without a document.
  int64_t finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A folder of shards, mapped into memory, of which only what is read is loaded.
class TokenShards : public TokenSource {
 public:
  /// Throws Error, in one line with the file, for anything that is not as docs/formats.md says: every length is checked
  /// here, ids when they are read.
  static std::shared_ptr<const TokenShards> open(const std::filesystem::path& folder);
  /// Whether a path is a folder that holds shards.
  static bool is_shards(const std::filesystem::path& path);
  ~TokenShards() override;

  const TokenFormat& format() const { return format_; }
  int64_t shards() const { return std::ssize(shards_); }
  int64_t documents() const override;
  int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t begin, std::span<int32_t> out) const override;
  uint64_t fingerprint() const override;

 private:
  struct Shard;
  struct Place;
  TokenShards();
  Place find(int64_t document) const;

  TokenFormat format_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<int64_t> first_document_;  // Of each shard, then the number of all.
};

}  // namespace focus

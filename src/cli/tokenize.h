#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace focus {

/// `focus convert --tokenize`: texts to shards of tokens (docs/formats.md).
struct TokenizeOptions {
  std::filesystem::path source;     ///< As --data takes it.
  std::filesystem::path tokenizer;  ///< A model's folder, or its tokenizer.json.
  std::filesystem::path out;
  int64_t shard_tokens = int64_t{1} << 25;
  int64_t workers = 1;
  bool keep_line_wraps = false;
};

/// Reads file by file and holds about 32 MB of text besides the largest file; the order of the documents is that of
/// the files, whatever the number of workers. Returns the summary. Throws Error; when interrupted nothing is written.
nlohmann::json tokenize_to_shards(const TokenizeOptions& options);

}  // namespace focus

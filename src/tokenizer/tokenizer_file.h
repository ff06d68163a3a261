#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace focus {

/// The contents of a tokenizer.json. The two long lists are kept apart from the rest.
struct TokenizerFile {
  std::string name;                                         // for messages
  nlohmann::json rest;                                      // everything but model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;       // model.vocab in file order
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges in order, from "a b" or ["a", "b"]
};

/// The contents of a file, unpacked if it is gzip. Throws Error naming the file if it cannot be read, is damaged, or
/// holds more than 1 GiB.
std::string read_maybe_gzip(const std::filesystem::path& file);
/// Reads a tokenizer.json, plain or gzip. Throws Error naming the file if it cannot be read or is not valid JSON, has a
/// key twice, or has a vocabulary or merges of another form.
TokenizerFile read_tokenizer_file(const std::filesystem::path& file);
/// The same from text; `name` is used in messages.
TokenizerFile parse_tokenizer_file(const std::string& text, const std::string& name);

}  // namespace focus

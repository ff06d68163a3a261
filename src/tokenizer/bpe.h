#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/pair_table.h"
#include "tokenizer/vocabulary.h"

namespace focus {

/// Byte-pair encoding (Sennrich et al. 2016, section 3.2) with the options of Hugging Face's BPE model: byte_fallback,
/// unk_token, fuse_unk, ignore_merges. Immutable; safe to share.
class Bpe {
 public:
  /// What one call of encode learns for the next; one per thread.
  class Memory {
   public:
    Memory();
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

   private:
    friend class Bpe;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  /// `node` is the field "model" without its lists. The vocabulary must outlive this. With `bytes`, pieces are raw
  /// bytes that stand for byte-level characters. Throws Error for an option that is not supported, merges that name
  /// tokens the vocabulary does not have, and merges given twice.
  Bpe(const JsonNode& node, const Vocabulary& vocabulary,
      const std::vector<std::pair<std::string, std::string>>& merges, bool bytes);

  /// Appends the ids of one piece (valid UTF-8, or raw bytes). Throws Error if a character is unknown and the token for
  /// the unknown is not in the vocabulary; without such a token unknown characters are left out.
  void encode(std::string_view piece, Memory& memory, std::vector<int32_t>& ids) const;

 private:
  using Symbols = std::basic_string<int32_t>;
  using SymbolsView = std::basic_string_view<int32_t>;

  void read_options(const JsonNode& node);
  void read_merges(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& where);
  int32_t id_of_char(char32_t c) const;
  void append_unknown(std::string_view utf8, Symbols& symbols, bool& pending_unknown) const;
  void to_symbols(std::string_view piece, Symbols& symbols) const;
  void encode_symbols(SymbolsView symbols, Memory::Impl& memory, std::vector<int32_t>& ids) const;
  void merge(SymbolsView symbols, Memory::Impl& memory) const;

  const Vocabulary* vocabulary_;
  std::string where_;
  bool bytes_;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::string unknown_token_;
  int32_t unknown_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};  // the id of each raw byte (bytes) or of <0x00>...<0xFF>; -1 if there is none
  std::vector<int32_t> char_ids_;        // ids of single characters below U+10000, -1 if there is none
  std::unordered_map<char32_t, int32_t> rare_char_ids_;  // of those from U+10000
  PairTable merges_;
  PairTable joints_;  // pairs (last symbol, first symbol) over which some merge can join
};

}  // namespace focus

#include "tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

constexpr char32_t kTableChars = 0x10000;
// Pieces longer than this are cut where no merge can join, so that a text that is one piece is still merged word by
// word.
constexpr size_t kLongPiece = 32;
constexpr size_t kRememberedLength = 64;
constexpr size_t kRememberedPieces = size_t{1} << 17;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

std::string byte_token(unsigned byte) {
  return fmt::format("<0x{:02X}>", byte);
}

char32_t first_char(std::string_view text) {
  size_t position = 0;
  return next_code_point(text, position);
}

char32_t last_char(std::string_view text) {
  size_t position = text.size() - 1;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80) --position;
  return next_code_point(text, position);
}

bool is_single_char(std::string_view text) {
  if (text.empty()) return false;
  size_t position = 0;
  next_code_point(text, position);
  return position == text.size();
}

}  // namespace

struct Bpe::Memory::Impl {
  struct Range {
    uint32_t begin;
    uint32_t end;
  };
  struct Hash {
    size_t operator()(SymbolsView key) const {
      uint64_t hash = key.size();
      for (const int32_t symbol : key) {
        hash = (hash ^ static_cast<uint32_t>(symbol)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
      }
      return hash;
    }
    using is_transparent = void;
  };

  std::unordered_map<Symbols, Range, Hash, std::equal_to<>> known;  // pieces and their ids within `results`
  std::vector<int32_t> results;

  Symbols symbols;  // of the piece at hand
  // A list of the parts while merging: part i is followed by part next[i]; rank[i] is the rank of that pair.
  std::vector<int32_t> part;
  std::vector<int32_t> next;
  std::vector<int32_t> previous;
  std::vector<int32_t> rank;
  std::vector<uint64_t> queue;  // rank << 32 | left part, smallest first
};

Bpe::Memory::Memory() : impl_(std::make_unique<Impl>()) {}
Bpe::Memory::~Memory() = default;

Bpe::Bpe(const JsonNode& node, const Vocabulary& vocabulary,
         const std::vector<std::pair<std::string, std::string>>& merges, bool bytes)
    : vocabulary_(&vocabulary),
      where_(node.where()),
      bytes_(bytes),
      char_ids_(kTableChars, -1),
      merges_(merges.size()),
      joints_(4 * merges.size()) {
  read_options(node);
  for (const auto& [token, id] : vocabulary.tokens()) {
    if (!is_single_char(token)) continue;
    const char32_t c = first_char(token);
    if (c < kTableChars) {
      char_ids_[c] = static_cast<int32_t>(id);
    } else {
      rare_char_ids_[c] = static_cast<int32_t>(id);
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = bytes_ ? id_of_char(byte_to_char(static_cast<unsigned char>(byte)))
                             : vocabulary.find(byte_token(byte)).value_or(-1);
  }
  read_merges(merges, node.where());
}

void Bpe::read_options(const JsonNode& node) {
  if (node.find("type") && node.type() != "BPE") node.fail_type("a model", node.type(), "BPE");
  byte_fallback_ = node.flag("byte_fallback", false);
  fuse_unknown_ = node.flag("fuse_unk", false);
  ignore_merges_ = node.flag("ignore_merges", false);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    require(!node.find(affix) || node.text(affix).empty(), "{}: {} '{}' is not supported", node.where(), affix,
            node.find(affix) ? node.text(affix) : "");
  }
  if (const std::optional<JsonNode> dropout = node.find("dropout")) {
    require(dropout->value().is_number() && dropout->value().get<double>() == 0.0, "{}: dropout is not supported",
            node.where());
  }
  if (node.find("unk_token")) {
    unknown_token_ = node.text("unk_token");
    unknown_id_ = vocabulary_->find(unknown_token_).value_or(-1);
  }
}

void Bpe::read_merges(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& where) {
  // A part begins and ends with the symbol of a character, or is itself a symbol: a byte, or the unknown.
  std::vector<char> whole_symbols(static_cast<size_t>(vocabulary_->size()), 0);
  if (unknown_id_ >= 0) whole_symbols[static_cast<size_t>(unknown_id_)] = 1;
  for (const int32_t id : byte_ids_) {
    if (id >= 0) whole_symbols[static_cast<size_t>(id)] = 1;
  }
  int32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const auto id_of = [&](const std::string& token) {
      const std::optional<int32_t> id = vocabulary_->find(token);
      require(id.has_value(), "{}.merges[{}]: '{}' is not in the vocabulary (merge of '{}' and '{}')", where, rank,
              token, left, right);
      return *id;
    };
    require(!left.empty() && !right.empty(), "{}.merges[{}]: a side is empty", where, rank);
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    require(merges_.insert(left_id, right_id, rank, id_of(left + right)),
            "{}.merges[{}]: '{}' and '{}' are given twice", where, rank, left, right);
    const int32_t last = id_of_char(last_char(left));
    const int32_t first = id_of_char(first_char(right));
    joints_.insert(last, first, 0, 0);
    if (whole_symbols[static_cast<size_t>(left_id)]) joints_.insert(left_id, first, 0, 0);
    if (whole_symbols[static_cast<size_t>(right_id)]) {
      joints_.insert(last, right_id, 0, 0);
      if (whole_symbols[static_cast<size_t>(left_id)]) joints_.insert(left_id, right_id, 0, 0);
    }
    ++rank;
  }
}

int32_t Bpe::id_of_char(char32_t c) const {
  if (c < kTableChars) return char_ids_[c];
  const auto found = rare_char_ids_.find(c);
  return found == rare_char_ids_.end() ? -1 : found->second;
}

void Bpe::append_unknown(std::string_view utf8, Symbols& symbols, bool& pending_unknown) const {
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && !bytes_ && std::all_of(utf8.begin(), utf8.end(), [&](char b) { return byte_id(b) >= 0; })) {
    for (const char byte : utf8) symbols.push_back(byte_id(byte));
    return;
  }
  if (unknown_token_.empty()) return;
  require(unknown_id_ >= 0, "{}: '{}' has no token, and the unk_token '{}' is not in the vocabulary", where_, utf8,
          unknown_token_);
  if (pending_unknown && !fuse_unknown_) symbols.push_back(unknown_id_);
  pending_unknown = true;
}

void Bpe::to_symbols(std::string_view piece, Symbols& symbols) const {
  symbols.clear();
  // As in Hugging Face's model, an unknown character is written when the next known one comes (byte fallback does not
  // count as known).
  bool pending_unknown = false;
  for (size_t position = 0; position < piece.size();) {
    const size_t begin = position;
    int32_t id = -1;
    if (bytes_) {
      id = byte_ids_[static_cast<unsigned char>(piece[position++])];
    } else {
      id = id_of_char(next_code_point(piece, position));
    }
    if (id >= 0) {
      if (pending_unknown) symbols.push_back(unknown_id_);
      pending_unknown = false;
      symbols.push_back(id);
    } else if (bytes_) {
      append_unknown(to_byte_chars(piece.substr(begin, 1)), symbols, pending_unknown);
    } else {
      append_unknown(piece.substr(begin, position - begin), symbols, pending_unknown);
    }
  }
  if (pending_unknown) symbols.push_back(unknown_id_);
}

void Bpe::encode(std::string_view piece, Memory& memory, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    const std::optional<int32_t> whole = vocabulary_->find(bytes_ ? to_byte_chars(piece) : std::string(piece));
    if (whole) {
      ids.push_back(*whole);
      return;
    }
  }
  Memory::Impl& m = *memory.impl_;
  to_symbols(piece, m.symbols);
  const SymbolsView symbols = m.symbols;
  size_t begin = 0;
  if (symbols.size() > kLongPiece) {
    for (size_t i = 1; i < symbols.size(); ++i) {
      if (joints_.find(symbols[i - 1], symbols[i]) != nullptr) continue;
      encode_symbols(symbols.substr(begin, i - begin), m, ids);
      begin = i;
    }
  }
  encode_symbols(symbols.substr(begin), m, ids);
}

void Bpe::encode_symbols(SymbolsView symbols, Memory::Impl& memory, std::vector<int32_t>& ids) const {
  if (symbols.size() < 2) {
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    return;
  }
  if (symbols.size() > kRememberedLength) {
    merge(symbols, memory);
    for (int32_t i = 0; i >= 0; i = memory.next[static_cast<size_t>(i)]) {
      ids.push_back(memory.part[static_cast<size_t>(i)]);
    }
    return;
  }
  auto found = memory.known.find(symbols);
  if (found == memory.known.end()) {
    if (memory.known.size() == kRememberedPieces) {
      memory.known.clear();
      memory.results.clear();
    }
    merge(symbols, memory);
    const auto begin = static_cast<uint32_t>(memory.results.size());
    for (int32_t i = 0; i >= 0; i = memory.next[static_cast<size_t>(i)]) {
      memory.results.push_back(memory.part[static_cast<size_t>(i)]);
    }
    const auto end = static_cast<uint32_t>(memory.results.size());
    found = memory.known.emplace(Symbols(symbols), Memory::Impl::Range{begin, end}).first;
  }
  const auto results = memory.results.begin();
  ids.insert(ids.end(), results + found->second.begin, results + found->second.end);
}

void Bpe::merge(SymbolsView symbols, Memory::Impl& m) const {
  const size_t count = symbols.size();
  m.part.assign(symbols.begin(), symbols.end());
  m.next.resize(count);
  m.previous.resize(count);
  m.rank.assign(count, kNoRank);
  m.queue.clear();
  const auto later = [](uint64_t a, uint64_t b) { return a > b; };
  const auto look_up = [&](size_t left) {
    const int32_t right = m.next[left];
    const PairTable::Entry* entry =
        right < 0 ? nullptr : merges_.find(m.part[left], m.part[static_cast<size_t>(right)]);
    m.rank[left] = entry == nullptr ? kNoRank : entry->rank;
    if (entry != nullptr) m.queue.push_back(uint64_t{static_cast<uint32_t>(entry->rank)} << 32 | left);
    return entry != nullptr;
  };
  for (size_t i = 0; i < count; ++i) {
    m.next[i] = i + 1 < count ? static_cast<int32_t>(i + 1) : -1;
    m.previous[i] = static_cast<int32_t>(i) - 1;
  }
  for (size_t i = 0; i < count; ++i) look_up(i);
  std::make_heap(m.queue.begin(), m.queue.end(), later);
  while (!m.queue.empty()) {
    std::pop_heap(m.queue.begin(), m.queue.end(), later);
    const uint64_t top = m.queue.back();
    m.queue.pop_back();
    const size_t left = top & 0xFFFFFFFFu;
    if (m.rank[left] != static_cast<int32_t>(top >> 32)) continue;  // the pair has changed since
    const auto right = static_cast<size_t>(m.next[left]);
    m.part[left] = merges_.find(m.part[left], m.part[right])->id;
    m.rank[right] = kNoRank;
    m.next[left] = m.next[right];
    if (m.next[left] >= 0) m.previous[static_cast<size_t>(m.next[left])] = static_cast<int32_t>(left);
    if (look_up(left)) std::push_heap(m.queue.begin(), m.queue.end(), later);
    if (m.previous[left] >= 0 && look_up(static_cast<size_t>(m.previous[left]))) {
      std::push_heap(m.queue.begin(), m.queue.end(), later);
    }
  }
}

}  // namespace focus

#include "data/token_shards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "shards are read and written as they lie in memory");

constexpr char kMagic[8] = {'F', 'O', 'C', 'U', 'S', 'T', 'O', 'K'};
constexpr uint32_t kVersion = 1;
constexpr const char* kExtension = ".tokens";
constexpr int64_t kNarrowVocab = 65536;

struct Header {
  char magic[8];
  uint32_t version, token_bytes;
  uint64_t tokens, documents, vocab_size, tokenizer, content;
  uint32_t shard, shards;
};
static_assert(sizeof(Header) == 64);

fs::path shard_name(uint64_t index) {
  return fmt::format("shard-{:05}{}", index, kExtension);
}

std::string_view view_of(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

}  // namespace

uint64_t tokenizer_hash(const fs::path& file_or_folder) {
  fs::path file = file_or_folder;
  if (fs::is_directory(file)) {
    file /= "tokenizer.json";
    if (!fs::exists(file)) file += ".gz";
  }
  uint64_t state = kHashStart;
  for (const char byte : read_text_or_gzip(file)) state = (state ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return state;
}

struct TokenShardWriter::State {
  TokenFormat format;
  int64_t shard_tokens;
  PendingFolder folder;  // Former shards go, other files stay.
  std::vector<uint64_t> ends;
  std::vector<int32_t> tokens;
  std::vector<Header> headers;

  State(const fs::path& path, const TokenFormat& f, int64_t size)
      : format(f), shard_tokens(size), folder(path, {kExtension}) {}

  void flush() {
    Header header{.magic = {},
                  .version = kVersion,
                  .token_bytes = format.vocab_size <= kNarrowVocab ? 2u : 4u,
                  .tokens = tokens.size(),
                  .documents = ends.size(),
                  .vocab_size = static_cast<uint64_t>(format.vocab_size),
                  .tokenizer = format.tokenizer_hash,
                  .content = hash_values(tokens, kHashStart),
                  .shard = static_cast<uint32_t>(headers.size()),
                  .shards = 0};
    std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
    for (const uint64_t end : ends) header.content = (header.content ^ end) * 0x100000001B3u;
    std::vector<uint16_t> narrow;
    if (header.token_bytes == 2) narrow.assign(tokens.begin(), tokens.end());
    const void* data = header.token_bytes == 2 ? static_cast<const void*>(narrow.data()) : tokens.data();
    write_file_atomically(folder.path() / shard_name(header.shard),
                          {view_of(&header, sizeof header), view_of(ends.data(), ends.size() * sizeof(uint64_t)),
                           view_of(data, tokens.size() * header.token_bytes)});
    headers.push_back(header);
    ends.clear();
    tokens.clear();
  }

  /// Every shard says how many there are, so that none can be missing unnoticed.
  void write_count() {
    for (Header& header : headers) {
      header.shards = static_cast<uint32_t>(headers.size());
      const fs::path file = folder.path() / shard_name(header.shard);
      const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
      const bool written = descriptor >= 0 && ::pwrite(descriptor, &header, sizeof header, 0) == sizeof header;
      const int error = errno;
      if (descriptor >= 0) ::close(descriptor);
      require(written, "cannot write {}: {}", file.string(), std::strerror(error));
    }
  }
};

TokenShardWriter::TokenShardWriter(const fs::path& folder, const TokenFormat& format, int64_t shard_tokens) {
  require(format.vocab_size >= 1 && shard_tokens >= 1, "shards need a vocabulary and a size");
  require(!fs::exists(folder) || TokenShards::is_shards(folder) || fs::is_empty(folder),
          "{}: this exists already and holds no shards; name another folder", folder.string());
  state_ = std::make_unique<State>(folder, format, shard_tokens);
}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::add(const Document& document) {
  require(!document.empty(), "a document without tokens cannot be written");
  for (const int32_t id : document) {
    require(id >= 0 && id < state_->format.vocab_size, "token {} is outside the vocabulary of {}", id,
            state_->format.vocab_size);
  }
  state_->tokens.insert(state_->tokens.end(), document.begin(), document.end());
  state_->ends.push_back(state_->tokens.size());
  if (std::ssize(state_->tokens) >= state_->shard_tokens) state_->flush();
}

int64_t TokenShardWriter::finish() {
  if (!state_->tokens.empty()) state_->flush();
  require(!state_->headers.empty(), "there is no document to write");
  state_->write_count();
  state_->folder.publish();
  return std::ssize(state_->headers);
}

/// One file, mapped.
struct TokenShards::Shard {
  fs::path file;
  const std::byte* data = nullptr;
  size_t size = 0;
  Header header{};

  explicit Shard(const fs::path& path) : file(path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(descriptor >= 0, "cannot read {}: {}", path.string(), std::strerror(errno));
    struct stat info {};
    if (::fstat(descriptor, &info) == 0) size = static_cast<size_t>(info.st_size);
    void* mapped = size >= sizeof(Header) ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
    const int error = errno;
    ::close(descriptor);
    require(size >= sizeof(Header), "{}: {} bytes, expected a header of {}", path.string(), size, sizeof(Header));
    require(mapped != MAP_FAILED, "cannot map {}: {}", path.string(), std::strerror(error));
    data = static_cast<const std::byte*>(mapped);
    std::memcpy(&header, data, sizeof header);
  }
  ~Shard() {
    if (data != nullptr) ::munmap(const_cast<std::byte*>(data), size);
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  const uint64_t* ends() const { return reinterpret_cast<const uint64_t*>(data + sizeof(Header)); }
  const std::byte* tokens() const { return data + sizeof(Header) + header.documents * sizeof(uint64_t); }
  uint64_t begin_of(uint64_t document) const { return document == 0 ? 0 : ends()[document - 1]; }

  /// Every length, so that nothing outside the file is ever read.
  void check() const {
    const auto wrong = [&](const std::string& what) { fail("{}: {}", file.string(), what); };
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) wrong("no shard of tokens: it does not begin so");
    if (header.version != kVersion) wrong(fmt::format("version {}, expected {}", header.version, kVersion));
    const uint64_t width = header.token_bytes, body = size - sizeof(Header);
    if (width != 2 && width != 4) wrong(fmt::format("{} bytes a token, expected 2 or 4", width));
    const uint64_t most_ids = width == 2 ? uint64_t{kNarrowVocab} : uint64_t{1} << 31;
    if (header.vocab_size < 1 || header.vocab_size > most_ids) {
      wrong(fmt::format("a vocabulary of {}, expected 1 to {}", header.vocab_size, most_ids));
    }
    if (header.shards < 1 || header.shard >= header.shards) {
      wrong(fmt::format("number {} of {} shards", header.shard, header.shards));
    }
    const uint64_t documents = header.documents, count = header.tokens;
    const bool fits = documents >= 1 && documents <= body / sizeof(uint64_t) &&
                      count <= (body - documents * sizeof(uint64_t)) / width &&
                      documents * sizeof(uint64_t) + count * width == body;
    if (!fits) wrong(fmt::format("{} documents of {} tokens in all do not make {} bytes", documents, count, size));
    uint64_t before = 0;
    for (uint64_t d = 0; d < documents; ++d) {
      if (ends()[d] <= before) wrong(fmt::format("document {} ends at {}, the one before at {}", d, ends()[d], before));
      before = ends()[d];
    }
    if (before != count) wrong(fmt::format("the last document ends at {} of {} tokens", before, count));
  }
};

/// Where a document is.
struct TokenShards::Place {
  const Shard& shard;
  uint64_t begin, end;  // Tokens of the shard.
};

TokenShards::TokenShards() = default;
TokenShards::~TokenShards() = default;

bool TokenShards::is_shards(const fs::path& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == kExtension) return true;
  }
  return false;
}

std::shared_ptr<const TokenShards> TokenShards::open(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kExtension) files.push_back(entry.path());
  }
  require(!error, "cannot read {}: {}", folder.string(), error.message());
  require(!files.empty(), "{}: no *{} file in this folder", folder.string(), kExtension);
  std::sort(files.begin(), files.end());
  std::shared_ptr<TokenShards> result(new TokenShards);
  result->first_document_ = {0};
  for (const fs::path& file : files) {
    auto shard = std::make_unique<Shard>(file);
    shard->check();
    const Header& header = shard->header;
    const Header& first = result->shards_.empty() ? header : result->shards_.front()->header;
    require(header.shard == result->shards_.size() && header.shards == files.size(),
            "{}: number {} of {} shards, but it is number {} of {} here: files are missing or mixed", file.string(),
            header.shard, header.shards, result->shards_.size(), files.size());
    require(header.vocab_size == first.vocab_size && header.tokenizer == first.tokenizer,
            "{}: made with another tokenizer than {}", file.string(), files.front().filename().string());
    result->first_document_.push_back(result->first_document_.back() + static_cast<int64_t>(header.documents));
    result->shards_.push_back(std::move(shard));
  }
  const Header& header = result->shards_.front()->header;
  result->format_ = {.vocab_size = static_cast<int64_t>(header.vocab_size), .tokenizer_hash = header.tokenizer};
  return result;
}

int64_t TokenShards::documents() const {
  return first_document_.back();
}

TokenShards::Place TokenShards::find(int64_t document) const {
  const auto next = std::upper_bound(first_document_.begin(), first_document_.end(), document);
  const size_t index = static_cast<size_t>(next - first_document_.begin()) - 1;
  const Shard& shard = *shards_[index];
  const auto inside = static_cast<uint64_t>(document - first_document_[index]);
  return {shard, shard.begin_of(inside), shard.ends()[inside]};
}

int64_t TokenShards::length(int64_t document) const {
  const Place place = find(document);
  return static_cast<int64_t>(place.end - place.begin);
}

void TokenShards::read(int64_t document, int64_t begin, std::span<int32_t> out) const {
  const Place place = find(document);
  const uint64_t first = place.begin + static_cast<uint64_t>(begin);
  require(begin >= 0 && first + out.size() <= place.end, "document {} has no tokens {} to {}", document, begin,
          begin + std::ssize(out));
  const auto copy = [&](const auto* tokens) {
    for (size_t i = 0; i < out.size(); ++i) {
      const auto id = static_cast<uint64_t>(tokens[first + i]);
      require(id < place.shard.header.vocab_size, "{}: token {} is {}, outside the vocabulary of {}",
              place.shard.file.string(), first + i, id, place.shard.header.vocab_size);
      out[i] = static_cast<int32_t>(id);
    }
  };
  if (place.shard.header.token_bytes == 2) {
    copy(reinterpret_cast<const uint16_t*>(place.shard.tokens()));
  } else {
    copy(reinterpret_cast<const uint32_t*>(place.shard.tokens()));
  }
}

uint64_t TokenShards::fingerprint() const {
  uint64_t state = kHashStart;
  for (const auto& shard : shards_) state = (state ^ shard->header.content) * 0x100000001B3u;
  return state;
}

}  // namespace focus

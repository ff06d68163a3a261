#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// A Hugging Face tokenizer.json (byte-level BPE, SentencePiece-style BPE with byte fallback), with the same ids as the
/// `tokenizers` library. Immutable after loading; safe to share between threads.
class Tokenizer {
 public:
  /// Reads tokenizer.json (or tokenizer.json.gz) itself or inside the given folder. Throws Error naming the file and,
  /// for a component type that is not known, that type. Settings for truncation and padding are not applied, as
  /// `transformers` does not apply them either unless asked.
  static Tokenizer load(const std::filesystem::path& file_or_folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Text (invalid UTF-8 becomes U+FFFD) to ids; with the post-processor's special tokens (BOS ...) if asked for.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;
  /// Ids to text. Ids outside the vocabulary throw Error.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;
  /// One above the highest id.
  int32_t vocab_size() const;
  std::optional<int32_t> id_of(std::string_view token) const;
  /// The token's own text, before any decoder. Throws Error for an id outside the vocabulary.
  const std::string& token_of(int32_t id) const;
  /// Whether the token is marked as special (decode leaves those out); false for an id outside the vocabulary.
  bool is_special(int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Decodes ids one at a time; never hands out half a character. The pieces joined equal Tokenizer::decode of all ids.
/// Takes constant time an id. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  /// The text that became certain with this id, maybe empty. Throws Error for an id outside the vocabulary. Where a
  /// decoder has ByteFallback, a run of byte tokens becomes certain when it ends.
  std::string push(int32_t id);
  /// What is left at the end (an incomplete character becomes U+FFFD as in decode). A new text may follow.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace focus

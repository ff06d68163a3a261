#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

std::filesystem::path find_file(const std::filesystem::path& file_or_folder) {
  if (!std::filesystem::is_directory(file_or_folder)) return file_or_folder;
  for (const char* name : {"tokenizer.json", "tokenizer.json.gz"}) {
    std::filesystem::path file = file_or_folder / name;
    if (std::filesystem::exists(file)) return file;
  }
  fail("{}: no tokenizer.json or tokenizer.json.gz in this folder", file_or_folder.string());
}

const std::string& checked_name(const TokenizerFile& file) {
  require(file.rest.is_object(), "{}: expected a JSON object", file.name);
  require(!file.vocab.empty() || !file.rest.contains("model") || !file.rest["model"].is_object() ||
              (file.rest["model"].contains("type") && file.rest["model"]["type"] != "BPE"),
          "{}: model.vocab is missing or empty", file.name);
  return file.name;
}

template <typename Make>
auto make_optional_part(const JsonNode& file, const char* key, Make make) -> decltype(make(file)) {
  const std::optional<JsonNode> node = file.find(key);
  return node ? make(*node) : decltype(make(file)){};
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerFile file)
    : name(checked_name(file)),
      vocabulary(std::move(file.vocab), file.name + ": model.vocab"),
      normalizer(make_optional_part(JsonNode::root(file.rest, name), "normalizer", make_normalizer)),
      pre_tokenizer(make_optional_part(JsonNode::root(file.rest, name), "pre_tokenizer", make_pre_tokenizer)),
      added(JsonNode::root(file.rest, name), vocabulary, normalizer.get()),
      bpe(JsonNode::root(file.rest, name).child("model"), vocabulary, file.merges,
          pre_tokenizer != nullptr && pre_tokenizer->yields_bytes()),
      special(make_optional_part(JsonNode::root(file.rest, name), "post_processor", read_post_processor)),
      decoder(make_optional_part(JsonNode::root(file.rest, name), "decoder", make_decoder)),
      size(vocabulary.size()) {
  if (decoder == nullptr) decoder = make_spacing_decoder();
  for (const AddedToken& token : added.tokens()) size = std::max(size, token.id + 1);
  for (const std::vector<int32_t>* ids : {&special.before, &special.after}) {
    for (const int32_t id : *ids) {
      require(find_token(id) != nullptr, "{}: post_processor: id {} is not in the vocabulary", name, id);
    }
  }
}

const std::string* Tokenizer::Impl::find_token(int32_t id) const {
  const AddedToken* token = added.token(id);
  return token != nullptr ? &token->text : vocabulary.token(id);
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& file_or_folder) {
  return Tokenizer(std::make_unique<Impl>(read_tokenizer_file(find_file(file_or_folder))));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = impl_->special.before;

  Bpe::Memory memory;
  const PieceSink encode_piece = [&](std::string_view piece, bool) { impl_->bpe.encode(piece, memory, ids); };
  const auto encode_plain = [&](std::string_view part, bool at_start) {
    if (impl_->pre_tokenizer != nullptr) {
      impl_->pre_tokenizer->split(part, at_start, encode_piece);
    } else {
      encode_piece(part, at_start);
    }
  };
  const auto encode_normalized = [&](std::string_view part, bool at_start) {
    if (!impl_->added.any(true)) {
      encode_plain(part, at_start);
      return;
    }
    for (const AddedTokenSpan& span : impl_->added.split(part, true)) {
      if (span.id >= 0) {
        ids.push_back(span.id);
      } else {
        encode_plain(part.substr(span.begin, span.end - span.begin), at_start && span.begin == 0);
      }
    }
  };
  for (const AddedTokenSpan& span : impl_->added.split(text, false)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    if (impl_->normalizer == nullptr) {
      encode_normalized(part, span.begin == 0);
      continue;
    }
    std::string normalized(part);
    impl_->normalizer->apply(normalized);
    if (!normalized.empty()) encode_normalized(normalized, span.begin == 0);
  }
  if (add_special_tokens) ids.insert(ids.end(), impl_->special.after.begin(), impl_->special.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  StreamDecoder stream(*this, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  text += stream.finish();
  return text;
}

int32_t Tokenizer::vocab_size() const {
  return impl_->size;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  const std::optional<int32_t> id = impl_->added.find(token);
  return id ? id : impl_->vocabulary.find(token);
}

const std::string& Tokenizer::token_of(int32_t id) const {
  const std::string* token = impl_->find_token(id);
  require(token != nullptr, "{}: token id {} is not in the vocabulary (0 to {})", impl_->name, id, vocab_size() - 1);
  return *token;
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = impl_->added.token(id);
  return token != nullptr && token->special;
}

}  // namespace focus

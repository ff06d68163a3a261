#include "tokenizer/decoder.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/replacement.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

// A sink that looks at whole tokens.
class WholeTokenSink : public TokenSink {
 public:
  explicit WholeTokenSink(TokenSink& next) : next_(next) {}
  void text(std::string_view fragment) final { token_ += fragment; }
  void end_token() final {
    take(token_);
    token_.clear();
  }
  void finish() override { next_.finish(); }

 protected:
  virtual void take(const std::string& token) = 0;
  void emit(std::string_view token) {
    next_.text(token);
    next_.end_token();
  }
  TokenSink& next_;

 private:
  std::string token_;
};

// Joins the bytes of all tokens to one token of text; bytes that are not UTF-8 become U+FFFD.
class ByteLevelSink : public WholeTokenSink {
 public:
  using WholeTokenSink::WholeTokenSink;
  void finish() override {
    std::string rest;
    repair_.finish(rest);
    emit(rest);
    next_.finish();
  }

 protected:
  void take(const std::string& token) override {
    std::string certain;
    repair_.push(from_byte_chars(token), certain);
    next_.text(certain);
  }

 private:
  Utf8Repair repair_;
};

class ReplaceSink : public WholeTokenSink {
 public:
  ReplaceSink(const Replacement& replacement, TokenSink& next) : WholeTokenSink(next), replacement_(replacement) {}

 protected:
  void take(const std::string& token) override { emit(replacement_.apply(token)); }

 private:
  const Replacement& replacement_;
};

// Turns each run of tokens <0x00>...<0xFF> into the text of those bytes, or, if the run as a whole is not UTF-8, each
// of them into U+FFFD. Nothing of a run is certain before it ends.
class ByteFallbackSink : public WholeTokenSink {
 public:
  using WholeTokenSink::WholeTokenSink;
  void finish() override {
    flush();
    next_.finish();
  }

 protected:
  void take(const std::string& token) override {
    if (const std::optional<char> byte = read_byte(token)) {
      run_ += *byte;
      return;
    }
    flush();
    emit(token);
  }

 private:
  static std::optional<char> read_byte(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
    unsigned value = 0;
    const char* end = token.data() + 5;
    const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
    if (error != std::errc() || stop != end) return std::nullopt;
    return static_cast<char>(value);
  }

  void flush() {
    if (is_valid_utf8(run_)) {
      if (!run_.empty()) emit(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) emit("\xEF\xBF\xBD");
    }
    run_.clear();
  }

  std::string run_;
};

class FuseSink : public TokenSink {
 public:
  explicit FuseSink(TokenSink& next) : next_(next) {}
  void text(std::string_view fragment) override { next_.text(fragment); }
  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }

 private:
  TokenSink& next_;
};

// Removes up to `start` of one character from the beginning of every token and up to `stop` from its end.
class StripSink : public TokenSink {
 public:
  StripSink(char32_t content, size_t start, size_t stop, TokenSink& next)
      : content_(content), start_(start), stop_(stop), next_(next) {}

  void text(std::string_view fragment) override {
    std::string out;
    for (size_t position = 0; position < fragment.size();) {
      const char32_t c = next_code_point(fragment, position);
      const bool strippable = c == content_;
      if (at_beginning_ && strippable && stripped_ < start_) {
        ++stripped_;
        continue;
      }
      at_beginning_ = false;
      if (strippable && held_ < stop_) {
        ++held_;
        continue;
      }
      if (!strippable) {
        for (; held_ > 0; --held_) append_utf8(out, content_);
      }
      append_utf8(out, c);
    }
    next_.text(out);
  }
  void end_token() override {
    at_beginning_ = true;
    stripped_ = 0;
    held_ = 0;
    next_.end_token();
  }
  void finish() override { next_.finish(); }

 private:
  char32_t content_;
  size_t start_;
  size_t stop_;
  TokenSink& next_;
  bool at_beginning_ = true;
  size_t stripped_ = 0;
  size_t held_ = 0;  // characters at the end that are removed if the token ends here
};

class MetaspaceSink : public WholeTokenSink {
 public:
  MetaspaceSink(const MetaspaceSettings& settings, TokenSink& next) : WholeTokenSink(next), settings_(settings) {}

 protected:
  void take(const std::string& token) override {
    const std::string_view space = first_ && settings_.scheme != PrependScheme::kNever ? "" : " ";
    first_ = false;
    std::string out;
    size_t done = 0;
    for (size_t found = 0; (found = token.find(settings_.replacement, done)) != std::string::npos;
         done = found + settings_.replacement.size()) {
      out.append(token, done, found - done);
      out += space;
    }
    out.append(token, done);
    emit(out);
  }

 private:
  const MetaspaceSettings& settings_;
  bool first_ = true;
};

class SpacingSink : public TokenSink {
 public:
  explicit SpacingSink(TokenSink& next) : next_(next) {}
  void text(std::string_view fragment) override {
    if (between_) next_.text(" ");
    between_ = false;
    next_.text(fragment);
  }
  void end_token() override {
    next_.end_token();
    between_ = true;
  }
  void finish() override { next_.finish(); }

 private:
  TokenSink& next_;
  bool between_ = false;
};

// A decoder without nested ones.
class SimpleDecoder : public Decoder {
 public:
  using Connect = std::function<std::unique_ptr<TokenSink>(TokenSink&)>;
  explicit SimpleDecoder(Connect connect) : connect_(std::move(connect)) {}
  std::unique_ptr<TokenSink> connect(TokenSink& next) const override { return connect_(next); }

 private:
  Connect connect_;
};

class DecoderSequence : public Decoder {
 public:
  explicit DecoderSequence(const JsonNode& node) {
    for (const JsonNode& part : node.items("decoders")) parts_.push_back(make_decoder(part));
  }
  std::unique_ptr<TokenSink> connect(TokenSink& next) const override { return std::make_unique<Chain>(parts_, next); }

 private:
  class Chain : public TokenSink {
   public:
    Chain(const std::vector<std::unique_ptr<Decoder>>& parts, TokenSink& next) : first_(&next) {
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        sinks_.push_back((*part)->connect(*first_));
        first_ = sinks_.back().get();
      }
    }
    void text(std::string_view fragment) override { first_->text(fragment); }
    void end_token() override { first_->end_token(); }
    void finish() override { first_->finish(); }

   private:
    std::vector<std::unique_ptr<TokenSink>> sinks_;
    TokenSink* first_;
  };

  std::vector<std::unique_ptr<Decoder>> parts_;
};

template <typename Sink>
std::unique_ptr<Decoder> plain_decoder() {
  return std::make_unique<SimpleDecoder>([](TokenSink& next) { return std::make_unique<Sink>(next); });
}

std::unique_ptr<Decoder> make_strip(const JsonNode& node) {
  const std::string content = node.text("content");
  size_t end = 0;
  const char32_t c = content.empty() ? 0 : next_code_point(content, end);
  require(end > 0 && end == content.size(), "{}: content '{}' must be one character", node.where(), content);
  const int64_t start = node.integer("start");
  const int64_t stop = node.integer("stop");
  require(start >= 0 && stop >= 0, "{}: start and stop must not be negative", node.where());
  return std::make_unique<SimpleDecoder>([=](TokenSink& next) {
    return std::make_unique<StripSink>(c, static_cast<size_t>(start), static_cast<size_t>(stop), next);
  });
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") return std::make_unique<DecoderSequence>(node);
  if (type == "ByteLevel") return plain_decoder<ByteLevelSink>();
  if (type == "ByteFallback") return plain_decoder<ByteFallbackSink>();
  if (type == "Fuse") return plain_decoder<FuseSink>();
  if (type == "Strip") return make_strip(node);
  if (type == "Replace") {
    const auto replacement = std::make_shared<const Replacement>(node);
    return std::make_unique<SimpleDecoder>(
        [replacement](TokenSink& next) { return std::make_unique<ReplaceSink>(*replacement, next); });
  }
  if (type == "Metaspace") {
    const auto settings = std::make_shared<const MetaspaceSettings>(read_metaspace(node));
    return std::make_unique<SimpleDecoder>(
        [settings](TokenSink& next) { return std::make_unique<MetaspaceSink>(*settings, next); });
  }
  node.fail_type("a decoder", type, "Sequence, ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace");
}

std::unique_ptr<Decoder> make_spacing_decoder() {
  return plain_decoder<SpacingSink>();
}

}  // namespace focus

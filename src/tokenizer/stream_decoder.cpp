#include <utility>

#include "tokenizer/tokenizer_impl.h"

namespace focus {

namespace {

class TextCollector : public TokenSink {
 public:
  void text(std::string_view fragment) override { text_ += fragment; }
  void end_token() override {}
  void finish() override {}
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

}  // namespace

struct StreamDecoder::State {
  State(const Tokenizer& from, bool skip) : tokenizer(&from), skip_special_tokens(skip) { begin(); }
  void begin() { first = tokenizer->impl_->decoder->connect(collector); }

  const Tokenizer* tokenizer;
  bool skip_special_tokens;
  TextCollector collector;
  std::unique_ptr<TokenSink> first;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : state_(std::make_unique<State>(tokenizer, skip_special_tokens)) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
  const std::string& token = state_->tokenizer->token_of(id);
  if (state_->skip_special_tokens && state_->tokenizer->is_special(id)) return {};
  state_->first->text(token);
  state_->first->end_token();
  return state_->collector.take();
}

std::string StreamDecoder::finish() {
  state_->first->finish();
  std::string rest = state_->collector.take();
  state_->begin();
  return rest;
}

}  // namespace focus

#include "tokenizer/normalizer.h"

#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/replacement.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(const JsonNode& node) {
    for (const JsonNode& part : node.items("normalizers")) parts_.push_back(make_normalizer(part));
  }
  void apply(std::string& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

class UnicodeForm : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override { text = to_normal_form(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t position = 0; position < text.size();) append_lower_case(out, next_code_point(text, position));
    text = std::move(out);
  }
};

class StripAccents : public Normalizer {
 public:
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
      const char32_t c = next_code_point(text, position);
      if (!is_combining_mark(c)) append_utf8(out, c);
    }
    text = std::move(out);
  }
};

class StripSpaces : public Normalizer {
 public:
  explicit StripSpaces(const JsonNode& node)
      : left_(node.flag("strip_left", true)), right_(node.flag("strip_right", true)) {}
  void apply(std::string& text) const override {
    size_t begin = text.size();
    size_t end = 0;
    for (size_t position = 0; position < text.size();) {
      const size_t start = position;
      if (is_whitespace(next_code_point(text, position))) continue;
      begin = std::min(begin, start);
      end = position;
    }
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    text = begin < end ? text.substr(begin, end - begin) : std::string();
  }

 private:
  bool left_;
  bool right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(const JsonNode& node) : prefix_(node.text("prepend")) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  explicit Replace(const JsonNode& node) : replacement_(node) {}
  void apply(std::string& text) const override { text = replacement_.apply(text); }

 private:
  Replacement replacement_;
};

class ByteLevelChars : public Normalizer {
 public:
  void apply(std::string& text) const override { text = to_byte_chars(text); }
};

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") return std::make_unique<NormalizerSequence>(node);
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<StripSpaces>(node);
  if (type == "Prepend") return std::make_unique<Prepend>(node);
  if (type == "Replace") return std::make_unique<Replace>(node);
  if (type == "ByteLevel") return std::make_unique<ByteLevelChars>();
  node.fail_type("a normalizer", type,
                 "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel");
}

}  // namespace focus

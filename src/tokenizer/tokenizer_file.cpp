#include "tokenizer/tokenizer_file.h"

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/json_reader.h"

namespace focus {

namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxDepth = 64;

// Builds the document, but sends model.vocab and model.merges straight to the lists.
class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(TokenizerFile& file, std::string_view text) : file_(file), text_(text) {}

  bool null() override { return scalar(json(nullptr), "null"); }
  bool boolean(bool value) override { return scalar(json(value), "a boolean"); }
  bool number_float(double value, const std::string&) override { return scalar(json(value), "a fraction"); }
  bool number_integer(int64_t value) override { return integer(value, json(value)); }
  bool number_unsigned(uint64_t value) override {
    return integer(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value), json(value));
  }
  bool binary(json::binary_t&) override { return false; }

  bool string(std::string& value) override {
    if (mode_ == Mode::kMerges) {
      const size_t space = value.find(' ');
      if (space == std::string::npos || space != value.rfind(' ')) return bad_merge(value);
      file_.merges.emplace_back(value.substr(0, space), value.substr(space + 1));
      return true;
    }
    if (mode_ == Mode::kMergePair) {
      pair_.push_back(std::move(value));
      return true;
    }
    return scalar(json(std::move(value)), "a string");
  }

  bool key(std::string& name) override {
    key_ = std::move(name);
    if (mode_ == Mode::kDocument) {
      require(!stack_.back().value->contains(key_), "{}: key '{}' appears twice in one object", file_.name, key_);
    }
    return true;
  }

  bool start_object(size_t) override {
    if (mode_ == Mode::kDocument && at("vocab")) {
      mode_ = Mode::kVocab;
      return true;
    }
    return open(json::object());
  }

  bool end_object() override {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kDocument;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool start_array(size_t) override {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      pair_.clear();
      return true;
    }
    if (mode_ == Mode::kDocument && at("merges")) {
      mode_ = Mode::kMerges;
      return true;
    }
    return open(json::array());
  }

  bool end_array() override {
    if (mode_ == Mode::kMergePair) {
      if (pair_.size() != 2) return bad_merge(fmt::format("{} strings", pair_.size()));
      file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      mode_ = Mode::kMerges;
    } else if (mode_ == Mode::kMerges) {
      mode_ = Mode::kDocument;
    } else {
      stack_.pop_back();
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    require(!text_.empty(), "{}: the file is empty", file_.name);
    fail("{}: not valid JSON {}", file_.name, json_error_text(error, text_));
  }

 private:
  enum class Mode { kDocument, kVocab, kMerges, kMergePair };
  struct Level {
    json* value;
    std::string name;
  };

  bool at(const char* name) const { return stack_.size() == 2 && stack_[1].name == "model" && key_ == name; }

  [[noreturn]] bool bad_merge(const std::string& found) const {
    fail("{}: model.merges[{}]: expected \"left right\" or [\"left\", \"right\"], found {}", file_.name,
         file_.merges.size(), found);
  }

  bool integer(int64_t number, json value) {
    if (mode_ != Mode::kVocab) return scalar(std::move(value), "a number");
    file_.vocab.emplace_back(std::move(key_), number);
    return true;
  }

  bool scalar(json value, const char* kind) {
    if (mode_ == Mode::kVocab) {
      fail("{}: model.vocab: the id of token '{}' is {}, expected an integer", file_.name, key_, kind);
    }
    if (mode_ != Mode::kDocument) bad_merge(kind);
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    if (mode_ == Mode::kVocab) {
      fail("{}: model.vocab: the id of token '{}' is not an integer", file_.name, key_);
    }
    if (mode_ != Mode::kDocument) bad_merge("a nested value");
    require(stack_.size() < kMaxDepth, "{}: nested more than {} deep", file_.name, kMaxDepth);
    std::string name = key_;
    json* placed = place(std::move(value));
    stack_.push_back({placed, std::move(name)});
    return true;
  }

  json* place(json value) {
    if (stack_.empty()) {
      file_.rest = std::move(value);
      return &file_.rest;
    }
    json& parent = *stack_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    json& slot = parent[key_];
    slot = std::move(value);
    return &slot;
  }

  TokenizerFile& file_;
  std::string_view text_;  // for messages
  Mode mode_ = Mode::kDocument;
  std::vector<Level> stack_;
  std::string key_;
  std::vector<std::string> pair_;
};

}  // namespace

std::string read_maybe_gzip(const std::filesystem::path& file) {
  require(!std::filesystem::exists(file) || std::filesystem::is_regular_file(file), "{}: not a regular file",
          file.string());
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), &gzclose_r);
  require(in != nullptr, "{}: cannot be opened: {}", file.string(), std::strerror(errno));
  gzbuffer(in.get(), 1 << 18);
  std::string text;
  std::array<char, 1 << 16> buffer;
  int got = 0;
  while ((got = gzread(in.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<size_t>(got));
    require(text.size() <= kMaxFileBytes, "{}: larger than {} bytes", file.string(), kMaxFileBytes);
  }
  int error = Z_OK;
  const char* message = gzerror(in.get(), &error);
  require(got == 0 && error == Z_OK, "{}: reading failed: {}", file.string(), message);
  require(file.extension() != ".gz" || text.empty() || !gzdirect(in.get()),
          "{}: not gzip data, which its name promises", file.string());
  return text;
}

TokenizerFile parse_tokenizer_file(const std::string& text, const std::string& name) {
  TokenizerFile file;
  file.name = name;
  Reader reader(file, text);
  json::sax_parse(text, &reader);
  return file;
}

TokenizerFile read_tokenizer_file(const std::filesystem::path& file) {
  return parse_tokenizer_file(read_maybe_gzip(file), file.string());
}

}  // namespace focus

#include "tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "tokenizer/byte_level.h"
#include "tokenizer/metaspace.h"
#include "tokenizer/replacement.h"
#include "tokenizer/split.h"
#include "tokenizer/unicode.h"

namespace focus {

namespace {

// The expression of GPT-2's encoder (openai/gpt-2, src/encoder.py).
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::unique_ptr<PreTokenizer> make_part(const JsonNode& node, bool is_last);

class PreTokenizerSequence : public PreTokenizer {
 public:
  PreTokenizerSequence(const JsonNode& node, bool is_last) {
    const std::vector<JsonNode> nodes = node.items("pretokenizers");
    for (const JsonNode& part : nodes) parts_.push_back(make_part(part, is_last && &part == &nodes.back()));
  }

  void split(std::string_view text, bool at_start, const PieceSink& sink) const override {
    split_from(0, text, at_start, sink);
  }
  bool yields_bytes() const override { return !parts_.empty() && parts_.back()->yields_bytes(); }

 private:
  void split_from(size_t part, std::string_view text, bool at_start, const PieceSink& sink) const {
    if (part == parts_.size()) {
      sink(text, at_start);
    } else if (part + 1 == parts_.size()) {
      parts_[part]->split(text, at_start, sink);
    } else {
      parts_[part]->split(text, at_start, [&](std::string_view piece, bool piece_at_start) {
        split_from(part + 1, piece, piece_at_start, sink);
      });
    }
  }

  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(const JsonNode& node, bool is_last)
      : add_prefix_space_(node.flag("add_prefix_space", true)),
        yields_bytes_(is_last),
        regex_(kByteLevelPattern, node.where()),
        use_regex_(node.flag("use_regex", true)) {}

  void split(std::string_view text, bool at_start, const PieceSink& sink) const override {
    std::string prefixed;
    if (add_prefix_space_ && !text.starts_with(' ')) {
      prefixed = ' ';
      prefixed += text;
      text = prefixed;
    }
    const auto emit = [&](std::string_view piece, bool piece_at_start) {
      if (yields_bytes_) {
        sink(piece, piece_at_start);
      } else {
        sink(to_byte_chars(piece), piece_at_start);
      }
    };
    if (!use_regex_) {
      emit(text, at_start);
      return;
    }
    regex_.for_each_stretch(
        text, [&](size_t begin, size_t end, bool) { emit(text.substr(begin, end - begin), at_start && begin == 0); });
  }
  bool yields_bytes() const override { return yields_bytes_; }

 private:
  bool add_prefix_space_;
  bool yields_bytes_;
  Regex regex_;
  bool use_regex_;
};

class Split : public PreTokenizer {
 public:
  explicit Split(const JsonNode& node)
      : pattern_(read_pattern(node)), behavior_(read_behavior(node)), invert_(node.flag("invert", false)) {}

  void split(std::string_view text, bool at_start, const PieceSink& sink) const override {
    Splitter splitter(text, at_start, behavior_, sink);
    pattern_.for_each_stretch(
        text, [&](size_t begin, size_t end, bool is_match) { splitter.add(begin, end, is_match != invert_); });
    splitter.finish();
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class Digits : public PreTokenizer {
 public:
  explicit Digits(const JsonNode& node)
      : behavior_(node.flag("individual_digits", false) ? SplitBehavior::kIsolated : SplitBehavior::kContiguous) {}

  void split(std::string_view text, bool at_start, const PieceSink& sink) const override {
    Splitter splitter(text, at_start, behavior_, sink);
    size_t done = 0;
    for (size_t position = 0; position < text.size();) {
      const size_t begin = position;
      if (!is_numeric(next_code_point(text, position))) continue;
      if (done < begin) splitter.add(done, begin, false);
      splitter.add(begin, position, true);
      done = position;
    }
    if (done < text.size()) splitter.add(done, text.size(), false);
    splitter.finish();
  }

 private:
  SplitBehavior behavior_;
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const JsonNode& node) : settings_(read_metaspace(node)), split_(node.flag("split", true)) {}

  void split(std::string_view text, bool at_start, const PieceSink& sink) const override {
    const std::string& mark = settings_.replacement;
    std::string marked;
    marked.reserve(text.size() + mark.size());
    const bool prepend =
        settings_.scheme == PrependScheme::kAlways || (settings_.scheme == PrependScheme::kFirst && at_start);
    if (prepend && !text.starts_with(' ') && !text.starts_with(mark)) marked = mark;
    for (const char c : text) {
      if (c == ' ') {
        marked += mark;
      } else {
        marked += c;
      }
    }
    if (!split_) {
      sink(marked, at_start);
      return;
    }
    Splitter splitter(marked, at_start, SplitBehavior::kMergedWithNext, sink);
    size_t done = 0;
    for (size_t found = 0; (found = marked.find(mark, done)) != std::string::npos; done = found + mark.size()) {
      if (done < found) splitter.add(done, found, false);
      splitter.add(found, found + mark.size(), true);
    }
    if (done < marked.size()) splitter.add(done, marked.size(), false);
    splitter.finish();
  }

 private:
  MetaspaceSettings settings_;
  bool split_;
};

std::unique_ptr<PreTokenizer> make_part(const JsonNode& node, bool is_last) {
  const std::string type = node.type();
  if (type == "Sequence") return std::make_unique<PreTokenizerSequence>(node, is_last);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>(node, is_last);
  if (type == "Split") return std::make_unique<Split>(node);
  if (type == "Digits") return std::make_unique<Digits>(node);
  if (type == "Metaspace") return std::make_unique<Metaspace>(node);
  node.fail_type("a pre-tokenizer", type, "Sequence, ByteLevel, Split, Digits, Metaspace");
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const JsonNode& node) {
  return make_part(node, true);
}

}  // namespace focus

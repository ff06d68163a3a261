#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/error.h"

namespace focus::jinja {

namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) {
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
      source_ += source[i] == '\r' ? '\n' : source[i];
    }
    // A template's last line break is dropped.
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  bool follows(std::string_view what) const { return source_.compare(at_, what.size(), what) == 0; }
  void advance(size_t count) {
    line_ += std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                        source_.begin() + static_cast<ptrdiff_t>(at_ + count), '\n');
    at_ += count;
  }

  /// Text up to the next tag, and that tag.
  void text() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) tag = source_.size();
      if (tag >= source_.size() ||
          (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos))
        break;
      ++tag;
    }
    std::string text = source_.substr(at_, tag - at_);
    const bool found = tag < source_.size();
    const char kind = found ? source_[tag + 1] : '\0';
    const char modifier = found && tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (found && modifier == '-') {
      text.erase(text.find_last_not_of(kSpace) + 1);
    } else if (found && kind != '{' && modifier != '+') {
      // lstrip_blocks: blanks between the start of the line and the tag go.
      const size_t last = text.find_last_not_of(" \t");
      const bool whole_line = last == std::string::npos ? at_ == 0 || source_[at_ - 1] == '\n' : text[last] == '\n';
      if (whole_line) text.erase(last == std::string::npos ? 0 : last + 1);
    }
    if (!text.empty()) add(Token::Kind::kText, text);
    advance(tag - at_);
    if (!found) return;
    const bool signed_tag = modifier == '-' || modifier == '+';
    advance(signed_tag ? 3 : 2);
    if (kind == '#') {
      comment();
    } else {
      inside(kind == '%');
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    require(end != std::string::npos, "line {}: a comment is not closed", line_);
    const bool strip = end > at_ && source_[end - 1] == '-';
    advance(end + 2 - at_);
    after_tag(true, strip);
  }

  /// Behind a tag: '-' takes all white space, trim_blocks one line break behind a block or comment.
  void after_tag(bool block, bool strip) {
    if (strip) {
      const size_t next = std::min(source_.find_first_not_of(kSpace, at_), source_.size());
      advance(next - at_);
    } else if (block && follows("\n")) {
      advance(1);
    }
  }

  void inside(bool block) {
    const int64_t begin_line = line_;
    add(block ? Token::Kind::kBlockBegin : Token::Kind::kOutputBegin, block ? "{%" : "{{");
    const std::string_view close = block ? "%}" : "}}";
    int64_t braces = 0;
    while (true) {
      advance(std::min(source_.find_first_not_of(kSpace, at_), source_.size()) - at_);
      require(at_ < source_.size(), "line {}: a tag is not closed", begin_line);
      const bool strip = source_[at_] == '-' && source_.compare(at_ + 1, 2, close) == 0;
      if (strip || (follows(close) && (block || braces == 0))) {
        add(block ? Token::Kind::kBlockEnd : Token::Kind::kOutputEnd, std::string(close));
        advance(strip ? 3 : 2);
        after_tag(block, strip);
        return;
      }
      if (source_[at_] == '{') ++braces;
      if (source_[at_] == '}') --braces;
      token();
    }
  }

  void token() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return number();
    if (is_name_character(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_character(source_[end])) ++end;
      add(Token::Kind::kName, source_.substr(at_, end - at_));
      return advance(end - at_);
    }
    static constexpr std::array<std::string_view, 24> kSymbols = {"==", "!=", "<=", ">=", "//", "**", "(", ")",
                                                                  "[",  "]",  "{",  "}",  ",",  ".",  ":", "|",
                                                                  "+",  "-",  "*",  "/",  "%",  "~",  "<", ">"};
    for (const std::string_view symbol : kSymbols) {
      if (follows(symbol)) {
        add(Token::Kind::kSymbol, std::string(symbol));
        return advance(symbol.size());
      }
    }
    require(c == '=', "line {}: unexpected character '{}'", line_, c);
    add(Token::Kind::kSymbol, "=");
    advance(1);
  }

  void string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        text += source_[i];
        continue;
      }
      const char escaped = source_[++i];
      static constexpr std::string_view kNames = "nrtbf\\'\"";
      static constexpr std::string_view kMeanings = "\n\r\t\b\f\\'\"";
      const size_t known = kNames.find(escaped);
      require(std::string_view("xuUN01234567").find(escaped) == std::string_view::npos,
              "line {}: the escape \\{} is not supported", line_, escaped);
      if (known != std::string_view::npos) {
        text += kMeanings[known];
      } else if (escaped != '\n') {
        text += '\\';
        text += escaped;
      }
    }
    require(i < source_.size(), "line {}: a string is not closed", line_);
    add(Token::Kind::kString, std::move(text));
    advance(i + 1 - at_);
  }

  void number() {
    size_t end = at_;
    while (end < source_.size() && std::isdigit(static_cast<unsigned char>(source_[end])) != 0) ++end;
    bool whole = true;
    if (end + 1 < source_.size() && source_[end] == '.' &&
        std::isdigit(static_cast<unsigned char>(source_[end + 1])) != 0) {
      whole = false;
      ++end;
      while (end < source_.size() && std::isdigit(static_cast<unsigned char>(source_[end])) != 0) ++end;
    }
    require(end - at_ <= 18, "line {}: the number {} is too long", line_, source_.substr(at_, end - at_));
    add(whole ? Token::Kind::kInteger : Token::Kind::kFloat, source_.substr(at_, end - at_));
    advance(end - at_);
  }

  std::string source_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) {
  return Lexer(source).run();
}

}  // namespace focus::jinja

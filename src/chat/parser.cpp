#include "chat/parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/error.h"
#include "chat/lexer.h"

namespace focus::jinja {

namespace {

using Kind = Expression::Kind;

// Templates nest a few levels; a hostile one must not exhaust the stack.
constexpr int64_t kDeepest = 200;
constexpr int64_t kMostExpressions = 10'000;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body run() {
    Body body = statements({});
    require(peek().kind == Token::Kind::kEnd, "line {}: unexpected tag", peek().line);
    return body;
  }

 private:
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool is(Token::Kind kind, const char* text, size_t ahead = 0) const {
    return peek(ahead).kind == kind && peek(ahead).text == text;
  }
  bool symbol(const char* text) const { return is(Token::Kind::kSymbol, text); }
  bool name(const char* text) const { return is(Token::Kind::kName, text); }
  bool take(Token::Kind kind, const char* text) {
    if (!is(kind, text)) return false;
    ++at_;
    return true;
  }
  bool take_symbol(const char* text) { return take(Token::Kind::kSymbol, text); }
  bool take_name(const char* text) { return take(Token::Kind::kName, text); }
  void expect(Token::Kind kind, const char* text) {
    require(take(kind, text), "line {}: '{}' was expected before '{}'", peek().line, text, peek().text);
  }
  void expect_symbol(const char* text) { expect(Token::Kind::kSymbol, text); }
  std::string identifier() {
    const Token token = next();
    require(token.kind == Token::Kind::kName, "line {}: a name was expected, not '{}'", token.line, token.text);
    return token.text;
  }
  void end_block() { expect(Token::Kind::kBlockEnd, "%}"); }

  /// Statements up to a block tag of one of these names, which is left unread.
  Body statements(std::initializer_list<const char*> ends) {
    const Depth depth(*this);
    Body body;
    while (peek().kind != Token::Kind::kEnd) {
      const Token& token = peek();
      if (token.kind == Token::Kind::kText) {
        body.push_back({.kind = Statement::Kind::kText, .line = token.line, .text = token.text});
        ++at_;
      } else if (token.kind == Token::Kind::kOutputBegin) {
        Statement output{.kind = Statement::Kind::kOutput, .line = token.line};
        ++at_;
        output.expression = expression();
        expect(Token::Kind::kOutputEnd, "}}");
        body.push_back(std::move(output));
      } else {
        const std::string& tag = peek(1).text;
        if (std::any_of(ends.begin(), ends.end(), [&](const char* end) { return tag == end; })) break;
        ++at_;
        body.push_back(statement());
      }
    }
    return body;
  }

  Statement statement() {
    const int64_t line = peek().line;
    const std::string tag = identifier();
    if (tag == "if") return if_statement(line);
    if (tag == "for") return for_statement(line);
    if (tag == "set") return set_statement(line);
    if (tag == "break" || tag == "continue") {
      require(loops_ > 0, "line {}: '{}' outside a loop", line, tag);
      end_block();
      return {.kind = tag == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, .line = line};
    }
    if (tag == "generation") {  // Marks what an assistant says; prints its content.
      end_block();
      Statement block{.kind = Statement::Kind::kIf, .line = line};
      block.branches.push_back({nullptr, statements({"endgeneration"})});
      close("generation", "endgeneration", line);
      return block;
    }
    fail("line {}: the tag '{}' is not supported (known: if, for, set, break, continue, generation)", line, tag);
  }

  void close(const char* opened, const char* end, int64_t line) {
    require(peek().kind == Token::Kind::kBlockBegin && is(Token::Kind::kName, end, 1), "line {}: '{}' is not closed",
            line, opened);
    at_ += 2;
    end_block();
  }

  Statement if_statement(int64_t line) {
    Statement statement{.kind = Statement::Kind::kIf, .line = line};
    ExpressionPtr condition = expression();
    end_block();
    while (true) {
      statement.branches.push_back({std::move(condition), statements({"elif", "else", "endif"})});
      const bool is_last = statement.branches.back().condition == nullptr;
      if (is_last || !is(Token::Kind::kBlockBegin, "{%") || is(Token::Kind::kName, "endif", 1)) break;
      require(peek(1).text == "elif" || peek(1).text == "else", "line {}: 'if' is not closed", line);
      ++at_;
      condition = next().text == "elif" ? expression() : nullptr;
      end_block();
    }
    close("if", "endif", line);
    return statement;
  }

  Statement for_statement(int64_t line) {
    Statement statement{.kind = Statement::Kind::kFor, .line = line};
    do {
      statement.names.push_back(identifier());
    } while (take_symbol(","));
    expect(Token::Kind::kName, "in");
    statement.expression = either();
    if (take_name("if")) statement.condition = expression();
    require(!name("recursive"), "line {}: recursive loops are not supported", line);
    end_block();
    ++loops_;
    statement.branches.push_back({nullptr, statements({"else", "endfor"})});
    --loops_;
    if (is(Token::Kind::kBlockBegin, "{%") && is(Token::Kind::kName, "else", 1)) {
      at_ += 2;
      end_block();
      statement.branches.push_back({nullptr, statements({"endfor"})});
    }
    close("for", "endfor", line);
    return statement;
  }

  Statement set_statement(int64_t line) {
    Statement statement{.kind = Statement::Kind::kSet, .line = line};
    statement.names.push_back(identifier());
    if (take_symbol(".")) statement.names.push_back(identifier());
    require(!symbol(","), "line {}: set of several names is not supported", line);
    if (take_symbol("=")) {
      statement.expression = expression();
      end_block();
      return statement;
    }
    end_block();
    statement.branches.push_back({nullptr, statements({"endset"})});
    close("set", "endset", line);
    return statement;
  }

  ExpressionPtr make(Kind kind, std::string text = "") {
    require(++expressions_ <= kMostExpressions, "line {}: more than {} expressions", peek().line, kMostExpressions);
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->line = peek().line;
    made->name = std::move(text);
    return made;
  }
  ExpressionPtr binary(const std::string& operation, ExpressionPtr left, ExpressionPtr right) {
    ExpressionPtr made = make(Kind::kBinary, operation);
    made->operands.push_back(std::move(left));
    made->operands.push_back(std::move(right));
    return made;
  }

  ExpressionPtr expression() {
    const Depth depth(*this);
    ExpressionPtr value = either();
    while (take_name("if")) {
      ExpressionPtr choice = make(Kind::kTernary);
      choice->operands.push_back(std::move(value));
      choice->operands.push_back(either());
      choice->operands.push_back(take_name("else") ? expression() : nullptr);
      value = std::move(choice);
    }
    return value;
  }

  ExpressionPtr either() {
    ExpressionPtr left = both();
    while (take_name("or")) left = binary("or", std::move(left), both());
    return left;
  }

  ExpressionPtr both() {
    ExpressionPtr left = negation();
    while (take_name("and")) left = binary("and", std::move(left), negation());
    return left;
  }

  ExpressionPtr negation() {
    const Depth depth(*this);
    if (!take_name("not")) return comparison();
    ExpressionPtr made = make(Kind::kUnary, "not");
    made->operands.push_back(negation());
    return made;
  }

  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    bool compared = false;
    while (true) {
      std::string operation;
      if (name("in")) {
        operation = "in";
      } else if (name("not") && is(Token::Kind::kName, "in", 1)) {
        operation = "not in";
        ++at_;
      } else {
        for (const char* known : {"==", "!=", "<=", ">=", "<", ">"}) {
          if (symbol(known)) operation = known;
        }
      }
      if (operation.empty()) return left;
      require(!compared, "line {}: chained comparisons are not supported", peek().line);
      compared = true;
      ++at_;
      left = binary(operation, std::move(left), sum());
    }
  }

  template <typename Next>
  ExpressionPtr chain(std::initializer_list<const char*> operations, Next&& operand) {
    ExpressionPtr left = operand();
    while (true) {
      const auto found = std::find_if(operations.begin(), operations.end(), [&](const char* o) { return symbol(o); });
      if (found == operations.end()) return left;
      ++at_;
      left = binary(*found, std::move(left), operand());
    }
  }

  ExpressionPtr sum() {
    return chain({"+", "-"}, [&] { return concatenation(); });
  }
  ExpressionPtr concatenation() {
    return chain({"~"}, [&] { return product(); });
  }
  ExpressionPtr product() {
    return chain({"*", "/", "//", "%"}, [&] { return unary(); });
  }

  ExpressionPtr unary() {
    const Depth depth(*this);
    for (const char* sign : {"-", "+"}) {
      if (take_symbol(sign)) {
        ExpressionPtr made = make(Kind::kUnary, sign);
        made->operands.push_back(unary());
        return made;
      }
    }
    require(!symbol("**"), "line {}: '**' is not supported", peek().line);
    return filtered(postfix(primary()));
  }

  ExpressionPtr filtered(ExpressionPtr value) {
    while (true) {
      if (take_symbol("|")) {
        ExpressionPtr made = make(Kind::kFilter, identifier());
        made->operands.push_back(std::move(value));
        if (take_symbol("(")) arguments(*made);
        value = postfix(std::move(made));
      } else if (take_name("is")) {
        const bool negated = take_name("not");
        ExpressionPtr made = make(Kind::kTest, identifier());
        made->operands.push_back(std::move(value));
        if (take_symbol("(")) {
          arguments(*made);
        } else if (takes_argument()) {
          made->operands.push_back(postfix(primary()));
        }
        if (negated) {
          ExpressionPtr inverse = make(Kind::kUnary, "not");
          inverse->operands.push_back(std::move(made));
          made = std::move(inverse);
        }
        value = std::move(made);
      } else {
        return value;
      }
    }
  }

  /// A test's argument may stand without brackets: `x is divisibleby 3`.
  bool takes_argument() const {
    const Token::Kind kind = peek().kind;
    if (kind == Token::Kind::kString || kind == Token::Kind::kInteger || kind == Token::Kind::kFloat) return true;
    if (kind == Token::Kind::kSymbol) return peek().text == "[" || peek().text == "{";
    if (kind != Token::Kind::kName) return false;
    static constexpr std::array kWords = {"and", "or", "else", "if", "is", "not", "in", "recursive"};
    return std::none_of(kWords.begin(), kWords.end(), [&](const char* word) { return peek().text == word; });
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    while (true) {
      if (take_symbol(".")) {
        ExpressionPtr made = make(Kind::kAttribute, identifier());
        made->operands.push_back(std::move(value));
        value = std::move(made);
      } else if (take_symbol("[")) {
        value = subscript(std::move(value));
      } else if (take_symbol("(")) {
        ExpressionPtr made = make(Kind::kCall);
        made->operands.push_back(std::move(value));
        arguments(*made);
        value = std::move(made);
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr value) {
    ExpressionPtr made = make(Kind::kItem);
    made->operands.push_back(std::move(value));
    if (!symbol(":")) made->operands.push_back(expression());
    if (!symbol(":")) {
      expect_symbol("]");
      return made;
    }
    made->kind = Kind::kSlice;
    if (made->operands.size() == 1) made->operands.push_back(nullptr);
    while (take_symbol(":")) {
      made->operands.push_back(symbol(":") || symbol("]") ? nullptr : expression());
    }
    require(made->operands.size() <= 4, "line {}: a slice has at most three parts", made->line);
    made->operands.resize(4);
    expect_symbol("]");
    return made;
  }

  /// Arguments up to the closing bracket.
  void arguments(Expression& call) {
    while (!take_symbol(")")) {
      require(!symbol("*") && !symbol("**"), "line {}: unpacked arguments are not supported", peek().line);
      if (peek().kind == Token::Kind::kName && is(Token::Kind::kSymbol, "=", 1)) {
        std::string keyword = identifier();
        ++at_;
        call.named.emplace_back(std::move(keyword), expression());
      } else {
        call.operands.push_back(expression());
      }
      if (!symbol(")")) expect_symbol(",");
    }
  }

  ExpressionPtr primary() {
    const Token token = next();
    ExpressionPtr made = make(Kind::kLiteral);
    made->line = token.line;
    switch (token.kind) {
      case Token::Kind::kString: {
        std::string text = token.text;
        while (peek().kind == Token::Kind::kString) text += next().text;
        made->literal = std::move(text);
        return made;
      }
      case Token::Kind::kInteger:
        made->literal = int64_t{std::stoll(token.text)};
        return made;
      case Token::Kind::kFloat:
        made->literal = std::stod(token.text);
        return made;
      case Token::Kind::kName:
        if (token.text == "true" || token.text == "True") {
          made->literal = true;
        } else if (token.text == "false" || token.text == "False") {
          made->literal = false;
        } else if (token.text == "none" || token.text == "None") {
          made->literal = None{};
        } else {
          made->kind = Kind::kName;
          made->name = token.text;
        }
        return made;
      default:
        break;
    }
    const bool opens = token.kind == Token::Kind::kSymbol;
    if (opens && token.text == "(") {
      made = expression();
      require(!symbol(","), "line {}: tuples are not supported", token.line);
      expect_symbol(")");
      return made;
    }
    if (opens && token.text == "[") {
      made->kind = Kind::kList;
      while (!take_symbol("]")) {
        made->operands.push_back(expression());
        if (!symbol("]")) expect_symbol(",");
      }
      return made;
    }
    if (opens && token.text == "{") {
      made->kind = Kind::kDict;
      while (!take_symbol("}")) {
        made->operands.push_back(expression());
        expect_symbol(":");
        made->operands.push_back(expression());
        if (!symbol("}")) expect_symbol(",");
      }
      return made;
    }
    fail("line {}: unexpected '{}' in an expression", token.line, token.text);
  }

  struct Depth {
    explicit Depth(Parser& parser) : parser_(parser) {
      require(++parser_.depth_ <= kDeepest, "line {}: nested deeper than {} levels", parser_.peek().line, kDeepest);
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --parser_.depth_; }
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int64_t loops_ = 0;
  int64_t depth_ = 0;
  int64_t expressions_ = 0;
};

}  // namespace

Body parse(const std::string& source) {
  return Parser(tokenize(source)).run();
}

}  // namespace focus::jinja

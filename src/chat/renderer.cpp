#include "chat/renderer.h"

#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "chat/builtins.h"
#include "chat/items.h"

namespace focus::jinja {

namespace {

using Kind = Expression::Kind;

// A bound on what a hostile template may do.
constexpr int64_t kMostSteps = 10'000'000;

enum class Flow { kOn, kBreak, kContinue };

class Renderer {
 public:
  explicit Renderer(const Dict& variables) { scopes_.push_back(variables); }

  std::string run(const Body& body) {
    execute(body);
    return std::move(out_);
  }

 private:
  Flow execute(const Body& body) {
    for (const Statement& statement : body) {
      const Flow flow = execute(statement);
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  Flow execute(const Statement& statement) {
    count(statement.line);
    switch (statement.kind) {
      case Statement::Kind::kText:
        print(statement.text);
        return Flow::kOn;
      case Statement::Kind::kOutput:
        print(located(statement.line, [&] { return evaluate(*statement.expression).text(); }));
        return Flow::kOn;
      case Statement::Kind::kSet:
        assign(statement);
        return Flow::kOn;
      case Statement::Kind::kBreak:
        return Flow::kBreak;
      case Statement::Kind::kContinue:
        return Flow::kContinue;
      case Statement::Kind::kFor:
        return loop(statement);
      case Statement::Kind::kIf:
        break;
    }
    for (const Branch& branch : statement.branches) {
      if (branch.condition == nullptr || evaluate(*branch.condition).truthy()) return execute(branch.body);
    }
    return Flow::kOn;
  }

  void print(const std::string& text) {
    require(out_.size() + text.size() <= kLongestText, "the template prints more than {} bytes", kLongestText);
    out_ += text;
  }

  void count(int64_t line) { require(++steps_ <= kMostSteps, "line {}: the template takes too many steps", line); }

  void assign(const Statement& statement) {
    Value value;
    if (statement.expression != nullptr) {
      value = evaluate(*statement.expression);
    } else {
      std::string outer = std::move(out_);
      out_.clear();
      execute(statement.branches.front().body);
      value = std::move(out_);
      out_ = std::move(outer);
    }
    if (statement.names.size() == 1) {
      scopes_.back().set(statement.names[0], std::move(value));
      return;
    }
    Value holder = lookup(statement.names[0]);
    require(holder.is_dict(), "line {}: '{}' is no namespace", statement.line, statement.names[0]);
    holder.as_dict().set(statement.names[1], std::move(value));
  }

  void bind(const Statement& statement, const Value& item) {
    if (statement.names.size() == 1) {
      scopes_.back().set(statement.names[0], item);
      return;
    }
    require(item.is_list() && item.as_list().size() == statement.names.size(),
            "line {}: {} cannot be taken apart into {} names", statement.line, item.type_name(),
            statement.names.size());
    for (size_t i = 0; i < statement.names.size(); ++i) scopes_.back().set(statement.names[i], item.as_list()[i]);
  }

  Flow loop(const Statement& statement) {
    const Value over = evaluate(*statement.expression);
    List items = over.is_undefined() ? List{} : items_of(over);
    if (statement.condition != nullptr) {
      List kept;
      for (const Value& item : items) {
        count(statement.line);
        scopes_.emplace_back();
        bind(statement, item);
        if (evaluate(*statement.condition).truthy()) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    if (items.empty() && statement.branches.size() > 1) return execute(statement.branches[1].body);
    const int64_t length = std::ssize(items);
    for (int64_t i = 0; i < length; ++i) {
      count(statement.line);
      Dict state;
      state.set("index", i + 1);
      state.set("index0", i);
      state.set("revindex", length - i);
      state.set("revindex0", length - i - 1);
      state.set("first", i == 0);
      state.set("last", i + 1 == length);
      state.set("length", length);
      state.set("previtem", i > 0 ? items[static_cast<size_t>(i - 1)] : Value());
      state.set("nextitem", i + 1 < length ? items[static_cast<size_t>(i + 1)] : Value());
      scopes_.emplace_back();
      scopes_.back().set("loop", std::move(state));
      bind(statement, items[static_cast<size_t>(i)]);
      const Flow flow = execute(statement.branches[0].body);
      scopes_.pop_back();
      if (flow == Flow::kBreak) break;
    }
    return Flow::kOn;
  }

  Value lookup(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const Value* found = scope->find(name)) return *found;
    }
    return {};
  }

  Value evaluate(const Expression& e) {
    count(e.line);
    const auto operand = [&](size_t i) { return evaluate(*e.operands.at(i)); };
    const auto optional = [&](size_t i) { return e.operands.at(i) == nullptr ? Value() : operand(i); };
    switch (e.kind) {
      case Kind::kLiteral:
        return e.literal;
      case Kind::kName: {
        const Value found = lookup(e.name);
        // `strftime_now is defined` must hold.
        return found.is_undefined() && is_function(e.name) ? Value("<function>") : found;
      }
      case Kind::kList: {
        List list;
        for (size_t i = 0; i < e.operands.size(); ++i) list.push_back(operand(i));
        return list;
      }
      case Kind::kDict: {
        Dict dict;
        for (size_t i = 0; i + 1 < e.operands.size(); i += 2) dict.set(operand(i).as_string(), operand(i + 1));
        return dict;
      }
      case Kind::kAttribute:
        return located(e.line, [&] { return item_of(operand(0), e.name); });
      case Kind::kItem:
        return located(e.line, [&] { return item_of(operand(0), operand(1)); });
      case Kind::kSlice:
        return located(e.line, [&] { return slice_of(operand(0), optional(1), optional(2), optional(3)); });
      case Kind::kCall:
        return located(e.line, [&] { return bounded(call(e)); });
      case Kind::kFilter:
        return located(e.line, [&] { return bounded(apply_filter(e.name, operand(0), arguments(e))); });
      case Kind::kTest:
        return located(e.line, [&] { return Value(apply_test(e.name, operand(0), arguments(e))); });
      case Kind::kTernary:
        return operand(1).truthy() ? operand(0) : optional(2);
      case Kind::kUnary:
        if (e.name == "not") return !operand(0).truthy();
        return located(e.line, [&] { return negated(operand(0), e.name == "-"); });
      case Kind::kBinary:
        break;
    }
    if (e.name == "and" || e.name == "or") {
      const Value left = operand(0);
      return left.truthy() == (e.name == "or") ? left : operand(1);
    }
    return located(e.line, [&] { return bounded(combined(e.name, operand(0), operand(1))); });
  }

  static Value bounded(Value value) {
    const size_t size = value.is_string() ? value.as_string().size() : value.is_list() ? value.as_list().size() : 0;
    require(size <= kLongestText, "a value is longer than {}", kLongestText);
    return value;
  }

  /// Adds the line to an error that has none yet.
  template <typename Work>
  static std::invoke_result_t<Work> located(int64_t line, Work&& work) {
    try {
      return work();
    } catch (const Error& error) {
      const std::string what = error.what();
      if (what.starts_with("line ")) throw;
      fail("line {}: {}", line, what);
    }
  }

  Arguments arguments(const Expression& e) {
    Arguments arguments;
    for (size_t i = 1; i < e.operands.size(); ++i) arguments.positional.push_back(evaluate(*e.operands[i]));
    for (const auto& [name, value] : e.named) arguments.named.emplace_back(name, evaluate(*value));
    return arguments;
  }

  Value call(const Expression& e) {
    const Expression& callee = *e.operands.at(0);
    if (callee.kind == Kind::kAttribute) {
      return call_method(evaluate(*callee.operands.at(0)), callee.name, arguments(e));
    }
    require(callee.kind == Kind::kName && is_function(callee.name), "'{}' cannot be called", callee.name);
    return call_function(callee.name, arguments(e));
  }

  static Value negated(const Value& value, bool minus) {
    if (value.is_int()) return minus ? -value.as_int() : value.as_int();
    return minus ? -value.as_number() : value.as_number();
  }

  static Value combined(const std::string& operation, const Value& a, const Value& b) {
    if (operation == "==") return a == b;
    if (operation == "!=") return !(a == b);
    if (operation == "<") return a < b;
    if (operation == ">") return b < a;
    if (operation == "<=") return !(b < a);
    if (operation == ">=") return !(a < b);
    if (operation == "in") return contains(b, a);
    if (operation == "not in") return !contains(b, a);
    if (operation == "~") return a.text() + b.text();
    if (operation == "+" && a.is_string()) return a.as_string() + b.as_string();
    if (operation == "+" && a.is_list()) {
      List list = a.as_list();
      list.insert(list.end(), b.as_list().begin(), b.as_list().end());
      return list;
    }
    if (a.is_int() && b.is_int()) return whole(operation, a.as_int(), b.as_int());
    const double x = a.as_number();
    const double y = b.as_number();
    if (operation == "+") return x + y;
    if (operation == "-") return x - y;
    if (operation == "*") return x * y;
    require(y != 0, "division by 0");
    if (operation == "/") return x / y;
    return operation == "//" ? std::floor(x / y) : x - std::floor(x / y) * y;
  }

  static Value whole(const std::string& operation, int64_t a, int64_t b) {
    int64_t result = 0;
    if (operation == "+" || operation == "-" || operation == "*") {
      const bool overflows = operation == "+"   ? __builtin_add_overflow(a, b, &result)
                             : operation == "-" ? __builtin_sub_overflow(a, b, &result)
                                                : __builtin_mul_overflow(a, b, &result);
      require(!overflows, "{} {} {} overflows", a, operation, b);
      return result;
    }
    require(b != 0, "division by 0");
    if (operation == "/") return static_cast<double>(a) / static_cast<double>(b);
    require(b != -1, "division by -1 is not supported");
    const int64_t remainder = a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
    return operation == "%" ? remainder : (a - remainder) / b;
  }

  std::vector<Dict> scopes_;
  std::string out_;
  int64_t steps_ = 0;
};

}  // namespace

std::string render(const Body& body, const Dict& variables) {
  return Renderer(variables).run(body);
}

}  // namespace focus::jinja

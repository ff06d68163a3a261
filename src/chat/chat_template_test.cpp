#include "chat/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace focus {
namespace {

using nlohmann::ordered_json;

std::string rendered(const std::string& source, const ordered_json& variables = ordered_json::object()) {
  return ChatTemplate(source, ordered_json::object()).render(variables);
}

std::string refusal(const std::string& source) {
  try {
    return "rendered: " + rendered(source);
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(ChatTemplate, LoopsConditionsAndExpressions) {
  EXPECT_EQ(rendered("{% for m in messages %}{% if loop.first and m['role'] != 'system' %}S|{% endif %}"
                     "{{ m.role + ':' + m['content'] | trim }};{% endfor %}",
                     {{"messages", {{{"role", "user"}, {"content", " hi "}}, {{"role", "bot"}, {"content", "yo"}}}}}),
            "S|user:hi;bot:yo;");
  EXPECT_EQ(rendered("{{ 1 + 2 * 3 - 7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 'a' ~ 1 }} {{ not x is defined }}"),
            "4 2 3.5 a1 True");
  EXPECT_EQ(rendered("{{ 'abcde'[1:-1] }}{{ [1, 2, 3][::-1] }}{{ [1, 2][-1] }}{{ {'a': none} }}"),
            "bcd[3, 2, 1]2{'a': None}");
}

TEST(ChatTemplate, WhiteSpaceAsTransformersSetsIt) {
  EXPECT_EQ(rendered("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(rendered("a \n {{- 'b' -}} \n c"), "abc");
  EXPECT_EQ(rendered("{# note #}\nx {%- set y = 1 %} z"), "x z");
}

TEST(ChatTemplate, NamespacesOutliveLoops) {
  EXPECT_EQ(rendered("{% set ns = namespace(n=0) %}{% set m = 0 %}{% for i in range(4) if i is odd %}"
                     "{% set ns.n = ns.n + i %}{% set m = 9 %}{% endfor %}{{ ns.n }} {{ m }}"),
            "4 0");
}

TEST(ChatTemplate, RefusalsNameLineAndConstruct) {
  EXPECT_NE(refusal("a\n{% macro f() %}{% endmacro %}").find("line 2: the tag 'macro' is not supported"),
            std::string::npos);
  EXPECT_NE(refusal("{{ x | xmlattr }}").find("line 1: the filter 'xmlattr' is not supported"), std::string::npos);
  EXPECT_NE(refusal("{{ 'a'.zfill(3) }}").find("the method 'zfill' of str"), std::string::npos);
  EXPECT_NE(refusal("{{ f(1) }}").find("'f' cannot be called"), std::string::npos);
  EXPECT_NE(
      refusal("\n\n{{ raise_exception('roles must alternate') }}").find("line 3: the template refuses: roles must"),
      std::string::npos);
  EXPECT_NE(refusal("{% if x %}").find("'if' is not closed"), std::string::npos);
  EXPECT_NE(refusal("{{ 'a }}").find("a string is not closed"), std::string::npos);
  EXPECT_NE(refusal("{{ x.y.z }}").find("undefined"), std::string::npos);
  EXPECT_NE(refusal("{{ 1 + 'a' }}").find("a number was expected, not str"), std::string::npos);
}

TEST(ChatTemplate, HostileTemplatesEndInAnError) {
  EXPECT_NE(refusal("{{ " + std::string(100000, '(') + " }}").find("nested deeper"), std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  EXPECT_NE(refusal(sum + " }}").find("expressions"), std::string::npos);
  EXPECT_NE(refusal("{% for i in range(1000000000) %}{% endfor %}").find("range"), std::string::npos);
  std::string doubling = "{% set x = 'aaaaaaaaaaaaaaaa' %}";
  for (int i = 0; i < 40; ++i) doubling += "{% set x = x + x %}";
  EXPECT_NE(refusal(doubling).find("longer than"), std::string::npos);
  const std::string loop = "{% for i in range(90000) %}";
  EXPECT_NE(refusal(loop + loop + "{% endfor %}{% endfor %}").find("too many steps"), std::string::npos);
  std::string growing = "{% set x = 'aaaaaaaaaaaaaaaa' %}";
  for (int i = 0; i < 10; ++i) growing += "{% set x = x.replace('a', x) %}";
  EXPECT_NE(refusal(growing).find("longer than"), std::string::npos);
}

TEST(ChatTemplate, HostileValuesEndInAnError) {
  const std::string itself = "{% set ns = namespace() %}{% set ns.x = ns %}";
  EXPECT_NE(refusal(itself + "\n{{ ns }}").find("line 2: lists and dicts are nested deeper"), std::string::npos);
  EXPECT_NE(refusal(itself + "{{ ns | tojson }}").find("nested deeper"), std::string::npos);
  EXPECT_EQ(rendered(itself + "{{ ns == ns }}"), "True");
  EXPECT_NE(refusal(itself + "{% set other = namespace() %}{% set other.x = other %}{{ ns == other }}").find("deeper"),
            std::string::npos);
  // Two values of 2^60 items that share their halves.
  std::string halves = "{% set x = [1, 2] %}{% set y = [1, 2] %}";
  for (int i = 0; i < 60; ++i) halves += "{% set x = [x, x] %}{% set y = [y, y] %}";
  EXPECT_NE(refusal(halves + "{{ x }}").find("longer than"), std::string::npos);
  EXPECT_NE(refusal(halves + "{{ x | tojson }}").find("longer than"), std::string::npos);
  EXPECT_NE(refusal(halves + "{{ x == y }}").find("values to compare"), std::string::npos);
  // What is nested this deep must also be freed.
  EXPECT_EQ(
      rendered("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [{'a': ns.x}] %}{% endfor %}k"),
      "k");
}

TEST(ChatTemplate, LineEndsOfOtherSystemsAreLineBreaks) {
  EXPECT_EQ(rendered("a\r\n  {% if true %}\r\nb\r\n  {% endif %}\r\n{{ 'c\r\nd' }}\r\n"), "a\nb\nc\nd");
  EXPECT_EQ(rendered("a\rb{# n #}\rc\r"), "a\nbc");
}

TEST(ChatTemplate, ReadsBothFormsOfFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "focus_chat_template_test";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null})");
  EXPECT_THROW(ChatTemplate::load(folder), Error);
  write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template":
    [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ bos_token + messages[0].content + eos_token }}"}]})");
  EXPECT_EQ(ChatTemplate::load(folder).render(std::vector<ChatMessage>{{"user", "x"}}), "<s>x</s>");
  EXPECT_EQ(special_token(folder, "eos_token"), "</s>");
  EXPECT_EQ(special_token(folder, "pad_token"), std::nullopt);
  write("chat_template.jinja", "{% if add_generation_prompt and tools is none %}A{{ bos_token }}{% endif %}");
  EXPECT_EQ(ChatTemplate::load(folder).render(std::vector<ChatMessage>{{"user", "x"}}), "A<s>");
  write("tokenizer_config.json", "[]");
  EXPECT_THROW(ChatTemplate::load(folder), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace focus

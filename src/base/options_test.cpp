#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/run_options.h"

namespace focus {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Color { kRed, kBlue };

struct Sample {
  int64_t steps = 100;
  double rate = 5e-3;
  std::string name = "default";
  std::filesystem::path folder;
  bool fast = false;
  bool bias = true;
  std::optional<int64_t> limit;
  std::vector<int64_t> lengths = {1024, 4096};
  std::vector<std::string> tasks;
  Color color = Color::kRed;
  std::string topic;
  OptionTable table{"sample", "a table with one option of every type"};

  Sample() {
    table.add_positional("topic", &topic, "what to show");
    table.section("Numbers");
    table.add("max-steps", &steps, "steps").at_least(1).at_most(1000).short_flag('n');
    table.add("rate", &rate, "learning rate").above(0).below(1);
    table.add("limit", &limit, "items").at_least(1).default_text("all");
    table.add("lengths", &lengths, "token counts").at_least(1);
    table.section("Others");
    table.add("name", &name, "a name");
    table.add("folder", &folder, "a folder").value_name("DIR");
    table.add("fast", &fast, "be fast");
    table.add("bias", &bias, "with bias");
    table.add("tasks", &tasks, "tasks").one_of({"lambada", "piqa"});
    table.add_choice("color", &color, {{"red", Color::kRed}, {"blue", Color::kBlue}}, "a color");
  }

  std::string error(const std::vector<std::string>& arguments) {
    try {
      table.parse(arguments);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  }
};

std::filesystem::path write_config(const std::string& text) {
  const auto file = std::filesystem::path(testing::TempDir()) / "focus_options_test.toml";
  std::ofstream(file) << text;
  return file;
}

TEST(Options, DefaultsStayWithoutFlags) {
  Sample s;
  s.table.parse({});
  EXPECT_EQ(s.steps, 100);
  EXPECT_FALSE(s.limit.has_value());
  EXPECT_FALSE(s.table.given("max-steps"));
  EXPECT_THROW(s.table.given("no-such"), Error);
}

TEST(Options, EveryTypeIsParsed) {
  Sample s;
  s.table.parse({"groups", "--max-steps", "7", "--rate=1e-4", "--name", "a b", "--folder", "x/y", "--fast", "--no-bias",
                 "--limit", "3", "--lengths", "1, 2,3", "--tasks=piqa,lambada", "--color", "blue"});
  EXPECT_EQ(s.topic, "groups");
  EXPECT_EQ(s.steps, 7);
  EXPECT_DOUBLE_EQ(s.rate, 1e-4);
  EXPECT_EQ(s.name, "a b");
  EXPECT_EQ(s.folder, "x/y");
  EXPECT_TRUE(s.fast);
  EXPECT_FALSE(s.bias);
  EXPECT_EQ(s.limit, 3);
  EXPECT_THAT(s.lengths, ElementsAre(1, 2, 3));
  EXPECT_THAT(s.tasks, ElementsAre("piqa", "lambada"));
  EXPECT_EQ(s.color, Color::kBlue);
  EXPECT_TRUE(s.table.given("max-steps"));
}

TEST(Options, ChangedMeansGivenWithAnotherValue) {
  Sample s;
  s.table.parse({"--max-steps", "100", "--rate", "0.5"});
  EXPECT_FALSE(s.table.changed("max-steps"));
  EXPECT_TRUE(s.table.changed("rate"));
  EXPECT_FALSE(s.table.changed("name"));
  EXPECT_THROW(s.table.changed("no-such"), Error);
}

TEST(Options, UnderscoresAreDashesInNamesOnly) {
  Sample s;
  s.table.parse({"--max_steps", "9", "--name", "--a_b", "--no_bias"});
  EXPECT_EQ(s.steps, 9);
  EXPECT_EQ(s.name, "--a_b");
  EXPECT_FALSE(s.bias);
  s.table.parse({"--name=--rate=a_b"});
  EXPECT_EQ(s.name, "--rate=a_b");
  s.table.parse({"--name="});
  EXPECT_EQ(s.name, "");
}

TEST(Options, ShortFlagsAndLastOneWins) {
  Sample s;
  s.table.parse({"-n", "5", "--fast", "--no-fast", "--max-steps=6"});
  EXPECT_EQ(s.steps, 6);
  EXPECT_FALSE(s.fast);
  s.table.parse({"-n8"});
  EXPECT_EQ(s.steps, 8);
}

TEST(Options, SwitchesTakeNoOtherWord) {
  Sample s;
  s.table.parse({"--fast", "topic"});
  EXPECT_EQ(s.topic, "topic");
  s.table.parse({"--fast=false", "--bias=true"});
  EXPECT_FALSE(s.fast);
  EXPECT_TRUE(s.bias);
}

TEST(Options, ErrorsNameFlagValueAndExpectation) {
  Sample s;
  EXPECT_EQ(s.error({"--max-steps", "0"}), "--max-steps 0: expected an integer of at least 1 and at most 1000");
  EXPECT_EQ(s.error({"--max-steps", "1001"}), "--max-steps 1001: expected an integer of at least 1 and at most 1000");
  EXPECT_EQ(s.error({"--max-steps=ten"}), "--max-steps ten: expected an integer of at least 1 and at most 1000");
  EXPECT_EQ(s.error({"--rate", "0"}), "--rate 0: expected a number above 0 and below 1");
  EXPECT_EQ(s.error({"--folder="}), "--folder : expected a path");
  EXPECT_EQ(s.error({"--lengths", "4,x"}), "--lengths 4,x: expected a comma list, each an integer of at least 1");
  EXPECT_EQ(s.error({"--tasks", "piqe"}),
            "--tasks piqe: expected a comma list out of lambada, piqa; did you mean piqa?");
  EXPECT_EQ(s.error({"--color", "bleu"}), "--color bleu: expected one of red, blue; did you mean blue?");
}

TEST(Options, OddNumbersAreRefused) {
  Sample s;
  for (const char* text : {"", " 5", "5 ", "5x", "1e2", "0x10", "9223372036854775808", "-1", "1.0", "+"}) {
    EXPECT_THAT(s.error({std::string("--max-steps=") + text}), HasSubstr("expected an integer")) << text;
  }
  for (const char* text : {"", "nan", "inf", "-0.5", "0,5", "1e999"}) {
    EXPECT_THAT(s.error({std::string("--rate=") + text}), HasSubstr("expected a number")) << text;
  }
}

TEST(Options, UnknownFlagNamesTheNearest) {
  Sample s;
  EXPECT_EQ(s.error({"--max-step", "5"}), "unknown flag --max-step; did you mean --max-steps?");
  EXPECT_EQ(s.error({"--max_step=5"}), "unknown flag --max-step; did you mean --max-steps?");
  EXPECT_EQ(s.error({"--zzzzzzzzzzz"}), "unknown flag --zzzzzzzzzzz; see 'focus sample --help'");
  EXPECT_EQ(s.error({"-x"}), "unknown flag -x; see 'focus sample --help'");
  EXPECT_EQ(s.error({"--no-rate"}), "unknown flag --no-rate; did you mean --rate?");
}

TEST(Options, MissingValuesAndStrayWords) {
  Sample s;
  EXPECT_EQ(s.error({"--rate"}), "--rate: needs a value");
  EXPECT_EQ(s.error({"--name", "--rate", "0.1"}), "--name: needs a value, got the flag --rate");
  EXPECT_EQ(s.error({"one", "two"}), "unexpected argument 'two'; see 'focus sample --help'");
  EXPECT_EQ(s.error({"--", "--rate", "x"}), "unexpected argument 'x'; see 'focus sample --help'");
  EXPECT_THAT(s.error({"-"}), HasSubstr("no error"));
}

TEST(Options, RequiredOnesMustComeFromSomewhere) {
  OptionTable table("t", "s");
  std::string model;
  table.add("model", &model, "the folder").required();
  try {
    table.parse({});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "--model is needed: the folder");
  }
  table.parse({"--config", write_config("model = 'x'").string()});
  EXPECT_EQ(model, "x");
}

TEST(Options, ConfigIsOverriddenByFlags) {
  Sample s;
  const auto file =
      write_config("max_steps = 12\nrate = 0.25\nlengths = [5, 6]\nfast = true\ncolor = 'blue'\nlimit = 2\n");
  s.table.parse({"--rate", "0.5", "--config", file.string(), "--no-fast"});
  EXPECT_EQ(s.steps, 12);
  EXPECT_DOUBLE_EQ(s.rate, 0.5);
  EXPECT_THAT(s.lengths, ElementsAre(5, 6));
  EXPECT_FALSE(s.fast);
  EXPECT_EQ(s.color, Color::kBlue);
  EXPECT_EQ(s.limit, 2);
}

TEST(Options, ConfigErrorsNameFileAndKey) {
  Sample s;
  auto error = [&](const std::string& text) {
    const auto file = write_config(text);
    std::string message = s.error({"--config", file.string()});
    EXPECT_THAT(message, HasSubstr(file.string())) << text;
    return message;
  };
  EXPECT_THAT(error("max-stepz = 1"), HasSubstr("unknown key 'max-stepz'; did you mean max-steps?"));
  EXPECT_THAT(error("max-steps = 0"), HasSubstr("max-steps = 0: expected an integer of at least 1"));
  EXPECT_THAT(error("max-steps = 1.5"), HasSubstr("max-steps = 1.5: expected an integer"));
  EXPECT_THAT(error("[name]\na = 1"), HasSubstr("not a table or array"));
  EXPECT_THAT(error("name = ['a', 'b']"), HasSubstr("not a table or array"));
  EXPECT_THAT(error("fast = 1"), HasSubstr("fast = 1: expected true or false"));
  EXPECT_THROW(s.table.parse({"--config", write_config("a = = 1").string()}), Error);
  EXPECT_THROW(s.table.parse({"--config", "/no/such/file.toml"}), Error);
  EXPECT_THROW(s.table.parse({"--config", testing::TempDir()}), Error);
}

TEST(Options, RecordIsReadBackAsConfig) {
  Sample s;
  s.table.parse({"--name", "quote \" back\\slash\nünï\x7f", "--rate", "1e-5", "--limit", "4", "--tasks", "piqa",
                 "--lengths", "", "--no-bias"});
  const auto record = s.table.record();
  EXPECT_EQ(record["rate"], 1e-5);
  EXPECT_EQ(record["color"], "red");
  Sample t;
  t.table.parse({"--config", write_config(s.table.record_toml()).string()});
  EXPECT_EQ(t.table.record(), record);
  Sample u;
  EXPECT_TRUE(u.table.record()["limit"].is_null());
  EXPECT_THAT(u.table.record_toml(), Not(HasSubstr("limit")));
}

TEST(Options, HelpListsSectionsDefaultsAndChoices) {
  Sample s;
  s.table.parse({"--help", "--unknown"});
  EXPECT_TRUE(s.table.help_requested());
  const std::string help = s.table.help();
  EXPECT_THAT(help, AllOf(HasSubstr("Usage: focus sample [topic] [flags]"), HasSubstr("\nNumbers\n"),
                          HasSubstr("-n, --max-steps N"), HasSubstr("(default 100)"), HasSubstr("(default all)"),
                          HasSubstr("--[no-]fast"), HasSubstr("lambada, piqa"), HasSubstr("--config FILE")));
  size_t begin = 0;
  while (begin < help.size()) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100u);
    begin = end + 1;
  }
}

TEST(RunOptions, GroupsAreCheckedAgainstEachOther) {
  auto parse = [](const std::vector<std::string>& arguments) {
    OptionTable table("eval", "s");
    CommonOptions common;
    AttentionOptions attention;
    common.declare(table, kModelFlags | kAdapterFlag | kDataFlags | kOutFlag | kSeedFlag);
    attention.declare(table, {"full", "focus"});
    std::vector<std::string> all = {"--model", "m", "--data", "d"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    table.parse(all);
    attention.resolve(table);
    return attention;
  };
  EXPECT_EQ(parse({}).groups, 64);
  EXPECT_EQ(parse({"--groups", "4"}).groups_per_token, 4);
  EXPECT_EQ(parse({"--symmetric"}).groups, 8);
  EXPECT_EQ(parse({"--symmetric"}).groups_per_token, 1);
  EXPECT_THROW(parse({"--groups", "0"}), UsageError);
  EXPECT_THROW(parse({"--method", "foo"}), UsageError);
  try {
    parse({"--groups-per-token", "65"});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "--groups-per-token 65: expected at most the number of groups, 64");
  }
}

TEST(RunOptions, FlagsThatTheMethodDoesNothingWithAreRefused) {
  const auto choose = [](const std::vector<std::string>& arguments, bool lists) -> std::string {
    OptionTable table("eval", "s");
    CommonOptions common;
    AttentionOptions attention;
    common.declare(table, kAdapterFlag);
    attention.declare(table, {"full", "focus", "window", "random-groups", "oracle", "performer"}, "as it comes");
    table.parse(arguments);
    attention.resolve(table);
    try {
      attention.choose_method(table, common.adapter.has_value());
      if (!lists) attention.choose_without_lists(table, "a");
    } catch (const UsageError& e) {
      return e.what();
    }
    return attention.method;
  };
  const auto chosen = [&](const std::vector<std::string>& arguments) { return choose(arguments, true); };
  const auto without_lists = [&](const std::vector<std::string>& arguments) { return choose(arguments, false); };
  EXPECT_EQ(without_lists({"--adapter", "a"}), "full");
  EXPECT_EQ(without_lists({"--adapter", "a", "--method", "window", "--window", "9"}), "window");
  EXPECT_THAT(without_lists({"--adapter", "a", "--method", "focus"}), HasSubstr("a has no lists, only head scales"));
  EXPECT_THAT(without_lists({"--adapter", "a", "--groups", "8"}), HasSubstr("--groups: --method full has no groups"));
  EXPECT_THAT(without_lists({"--adapter", "a", "--window", "9"}), HasSubstr("--window"));
  EXPECT_EQ(chosen({}), "full");
  EXPECT_EQ(chosen({"--adapter", "a"}), "focus");
  EXPECT_EQ(chosen({"--adapter", "a", "--force", "--window", "3", "--groups-per-token", "3", "--tau", "0.5"}), "focus");
  EXPECT_EQ(chosen({"--method", "focus"}), "--method focus needs --adapter: a folder made by focus train");
  for (const char* flag : {"--window", "--sinks", "--groups", "--groups-per-token", "--tau", "--sinkhorn-iters"}) {
    EXPECT_THAT(chosen({"--method", "full", flag, "2"}), AllOf(HasSubstr(flag), HasSubstr("--method full"))) << flag;
    EXPECT_THAT(chosen({flag, "2"}), AllOf(HasSubstr(flag), HasSubstr("--method full"))) << flag;
  }
  EXPECT_THAT(chosen({"--method", "full", "--shared"}), HasSubstr("--shared: --method full has no groups"));
  EXPECT_THAT(chosen({"--method", "full", "--routing", "paper"}), HasSubstr("--routing"));
  EXPECT_THAT(chosen({"--method", "full", "--force"}), HasSubstr("--force belongs to --adapter"));
  EXPECT_EQ(chosen({"--method", "full", "--adapter", "a"}), "full");
  EXPECT_THAT(chosen({"--method", "performer", "--adapter", "a"}), HasSubstr("takes nothing"));
  EXPECT_EQ(chosen({"--method", "window", "--adapter", "a", "--window", "9"}), "window");
  EXPECT_THAT(chosen({"--method", "window", "--groups", "8"}), HasSubstr("--groups: --method window has no groups"));
  EXPECT_EQ(chosen({"--method", "random-groups", "--groups", "8", "--shared", "--sinks", "2"}), "random-groups");
  EXPECT_THAT(chosen({"--method", "random-groups", "--tau", "1"}), HasSubstr("--tau: --method random-groups draws"));
  EXPECT_THAT(chosen({"--method", "oracle", "--groups", "8"}), HasSubstr("oracle has no groups"));
  EXPECT_EQ(chosen({"--method", "full", "--window", "128"}), "full");  // As a saved run record gives every option.
}

TEST(Options, PathsLoseATrailingSlash) {
  std::filesystem::path path;
  OptionTable table("t", "s");
  table.add("folder", &path, "a folder");
  for (const auto& [given, kept] : {std::pair{"a/b/", "a/b"}, {"a/b//", "a/b"}, {"/", "/"}, {"./", "."}, {"a", "a"}}) {
    table.parse({"--folder", given});
    EXPECT_EQ(path, kept) << given;
  }
}

TEST(Options, RepeatableFlagsCollectTheirValuesAsTheyAre) {
  std::vector<std::string> stops;
  OptionTable table("generate", "Test");
  table.add("stop", &stops, "texts").repeatable();
  table.parse({"--stop", "a, b", "--stop=", "--stop", "\n"});
  EXPECT_EQ(stops, (std::vector<std::string>{"a, b", "", "\n"}));
}

}  // namespace
}  // namespace focus

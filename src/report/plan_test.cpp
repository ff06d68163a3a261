#include "report/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "report/content_hash.h"

namespace focus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kRecipe = R"(title = "T"
source = "table 1"
[vars]
common = "--model {model}"
[needs]
other = "another model"
[runs]
train = "train {common} --steps {steps} --seed {seed}"
score = "eval {common} --adapter {train.adapter} --k {k}"
full = "eval {common}"
foreign = "eval --model {other}"
[[columns]]
key = "ppl"
title = "PPL"
value = "perplexity{suffix}"
[[rows]]
id = "full"
title = "full"
run = "full"
[[rows]]
id = "k1"
title = "one"
run = "score"
set = { k = 1 }
[[rows]]
id = "k2"
title = "two"
run = "score"
set = { k = 2 }
[[rows]]
id = "again"
title = "one again"
run = "score"
set = { k = 1 }
[[rows]]
id = "foreign"
title = "another model"
run = "foreign"
)";

class Planning : public ::testing::Test {
 protected:
  Planning() {
    settings_.scale = "quick";
    settings_.common =
        parse_common_recipe("[vars]\nsteps = 9\nsuffix = \"\"\n[quick]\nmodel = \"models/m\"\n", "common.toml");
    settings_.root = "/project";
    settings_.runs = "/out dir/runs";
    settings_.version = "1";
    settings_.fingerprint = [this](const std::filesystem::path& path) {
      require(path != "/project/absent", "{}: no such file or folder", path.string());
      return content_ + path.filename().string();
    };
  }
  Plan plan(const std::string& text = kRecipe) const {
    return make_plan({parse_recipe(text, "t1", "t1.toml")}, settings_);
  }
  std::string fault(const std::string& text) const {
    try {
      plan(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  PlanSettings settings_;
  std::string content_ = "content of ";
};

TEST_F(Planning, RunsStandOnceAndAfterWhatTheyNeed) {
  const Plan made = plan();
  ASSERT_EQ(made.runs.size(), 4u);  // full, train, score k = 1, score k = 2
  EXPECT_THAT(made.runs[0].arguments,
              ElementsAre("eval", "--model", "models/m", "--out", made.runs[0].folder.string(), "--json"));
  EXPECT_THAT(made.runs[1].arguments, ElementsAre("train", "--model", "models/m", "--steps", "9", "--seed", "0",
                                                  "--out", made.runs[1].folder.string(), "--json"));
  EXPECT_THAT(made.runs[2].arguments,
              ElementsAre("eval", "--model", "models/m", "--adapter", made.runs[1].folder.string() + "/adapter", "--k",
                          "1", "--out", made.runs[2].folder.string(), "--json"));
  EXPECT_THAT(made.runs[2].after, ElementsAre(1u));
  const auto& rows = made.rows.at(0);
  EXPECT_EQ(rows[1].sources[0].at("ppl"), rows[3].sources[0].at("ppl"));
  EXPECT_NE(rows[1].sources[0].at("ppl"), rows[2].sources[0].at("ppl"));
  EXPECT_EQ(rows[1].values.at("ppl"), "perplexity");
  EXPECT_TRUE(rows[4].sources.empty());
  EXPECT_THAT(rows[4].missing, HasSubstr("--set other=...: another model"));
}

TEST_F(Planning, OnlyWhatUsesTheSeedIsRepeated) {
  settings_.repetitions = 3;
  const Plan made = plan();
  EXPECT_EQ(made.runs.size(), 1u + 3 * 3);
  EXPECT_EQ(made.rows[0][0].sources[0], made.rows[0][0].sources[2]);
  EXPECT_NE(made.rows[0][1].sources[0], made.rows[0][1].sources[2]);
}

TEST_F(Planning, KeysFollowFlagsFilesAndVersion) {
  const auto keys = [&] {
    std::vector<std::string> all;
    for (const PlannedRun& run : plan().runs) all.push_back(run.key);
    return all;
  };
  const auto before = keys();
  EXPECT_EQ(keys(), before);
  settings_.runs = "/elsewhere";  // Where results lie does not matter.
  EXPECT_EQ(keys(), before);
  content_ = "another content of ";
  const auto other_files = keys();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NE(other_files[i], before[i]);
  content_ = "content of ";
  settings_.version = "2";
  EXPECT_NE(keys()[0], before[0]);
  settings_.version = "1";
  settings_.given["steps"] = "10";  // Changes the training and all that rests on it, and nothing else.
  const auto other_steps = keys();
  EXPECT_EQ(other_steps[0], before[0]);
  for (size_t i = 1; i < before.size(); ++i) EXPECT_NE(other_steps[i], before[i]);
}

TEST_F(Planning, KeysFollowFilesHoweverTheirFlagsAreWritten) {
  const auto key = [&](const std::string& flags) {
    std::string text = kRecipe;
    return plan(text.replace(text.find("full = \"eval {common}"), 21, "full = \"eval {common} " + flags)).runs[0].key;
  };
  const std::vector<std::string> forms = {"--data x",       "--data=x",       "--tasks-data x",
                                          "--tasks_data x", "--tasks_data=x", "--config x"};
  std::vector<std::string> before;
  settings_.runs = "/out";
  settings_.common.variables["quick"]["model"] = "/out/run";  // Only what the flags name has content.
  for (const std::string& form : forms) before.push_back(key(form));
  EXPECT_EQ(before[0], before[1]);
  EXPECT_EQ(before[2], before[4]);
  content_ = "another content of ";
  for (size_t i = 0; i < forms.size(); ++i) EXPECT_NE(key(forms[i]), before[i]) << forms[i];
}

TEST_F(Planning, KeysOfTimesFollowTheMachine) {
  std::string text = kRecipe;
  text.replace(text.find("full = \"eval"), 12, "full = \"bench");
  const auto keys = [&] {
    const Plan made = plan(text);
    return std::pair(made.runs[0].key, made.runs[1].key);
  };
  settings_.machine = "one";
  const auto before = keys();
  settings_.machine = "another";
  EXPECT_NE(keys().first, before.first);
  EXPECT_EQ(keys().second, before.second);
  settings_.machine = "one";
  settings_.flags = {"--threads", "2"};
  EXPECT_NE(keys().first, before.first);
  settings_.flags.clear();
  text.replace(text.find("perplexity{suffix}"), 18, "seconds");
  const auto shown = keys();
  settings_.machine = "another";
  EXPECT_NE(keys().second, shown.second);
}

TEST_F(Planning, GivenVariablesWinAndMayHoldBlanks) {
  settings_.given["model"] = "/my models/m \"1\"";
  const Plan made = plan();
  EXPECT_EQ(made.runs[0].arguments[2], "/my models/m \"1\"");
  settings_.given = {{"train.adapter", "ready"}};  // In place of a training.
  EXPECT_EQ(plan().runs.size(), 3u);
  EXPECT_EQ(plan().runs[1].arguments[4], "ready");
}

TEST_F(Planning, AReadyOutputCountsOnlyForTheVariablesItWasMadeWith) {
  settings_.common.variables["quick"]["train.adapter"] = "ready";
  EXPECT_EQ(plan().runs.size(), 3u);  // full, score k = 1, score k = 2: k is no matter of the training.
  EXPECT_EQ(plan().runs[1].arguments[4], "ready");
  settings_.given["steps"] = "10";
  EXPECT_EQ(plan().runs.size(), 4u);
  settings_.given = {{"model", "other"}};  // Through {common}.
  EXPECT_EQ(plan().runs.size(), 4u);
  settings_.given["train.adapter"] = "mine";  // The user's own stands for all.
  EXPECT_EQ(plan().runs.size(), 3u);
  EXPECT_EQ(plan().runs[1].arguments[4], "mine");
  settings_.given.clear();
  std::string text = kRecipe;
  text.replace(text.rfind("set = { k = 1 }"), 15, "set = { k = 1, steps = 9 }");
  EXPECT_EQ(plan(text).runs.size(), 5u);  // Of that row alone.
}

TEST_F(Planning, TellsWhichGivenVariablesDecideAboutARow) {
  settings_.given = {{"steps", "10"}, {"k", "5"}, {"absent", "1"}};  // k: every row has its own.
  EXPECT_THAT(plan().used, ElementsAre("steps"));
  settings_.given = {{"train.adapter", "ready"}, {"steps", "10"}};
  EXPECT_THAT(plan().used, ElementsAre("train.adapter"));
  // A row that is left out uses nothing.
  std::string text = kRecipe;
  text.replace(text.find("eval --model {other}"), 20, "eval --x {absent} --model {other}");
  settings_.given = {{"absent", "1"}};
  EXPECT_THAT(plan(text).used, ElementsAre());
}

TEST_F(Planning, FaultsNameRecipeAndRow) {
  const auto with = [](const std::string& what, const std::string& by) {
    std::string text = kRecipe;
    return text.replace(text.find(what), what.size(), by);
  };
  EXPECT_THAT(fault(with("{steps}", "{stepz}")), HasSubstr("recipe t1, row 'k1': {stepz}"));
  EXPECT_THAT(fault(with("{steps}", "{score.out}")), HasSubstr("needs itself"));
  EXPECT_THAT(fault(with("--k {k}", "--k \\\"{k}")), HasSubstr("quote"));
  EXPECT_THAT(fault(with("common = \"", "model = \"{common}\"\ncommon = \"")), HasSubstr("stands for itself"));
  settings_.given["model"] = "absent";
  EXPECT_THAT(fault(kRecipe), HasSubstr("row 'full': --model /project/absent: no such file or folder"));
}

TEST(Commands, AreSplitAndShown) {
  EXPECT_THAT(split_command("a  b\\ c \"d e\"f \"\" g\n"), ElementsAre("a", "b c", "d ef", "", "g"));
  EXPECT_THROW(split_command("a \"b"), Error);
  EXPECT_EQ(
      show_command({"eval", "--out", "/o/runs/eval-1", "--model", "/r/data/m", "--data", "/else/where", "--x", "a b"},
                   "/r", "/o/runs"),
      "focus eval --out runs/eval-1 --model data/m --data where --x \"a b\"");
}

TEST(ContentHashes, SeeEveryByteAndName) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "focus_content_hash";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "sub");
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("a", "one");
  write("sub/b", "two");
  const std::string before = path_hash(folder);
  EXPECT_EQ(path_hash(folder), before);
  write(".hidden", "x");
  EXPECT_EQ(path_hash(folder), before);
  write("sub/b", "twO");
  EXPECT_NE(path_hash(folder), before);
  write("sub/b", "two");
  std::filesystem::rename(folder / "a", folder / "c");
  EXPECT_NE(path_hash(folder), before);
  // A large file is sampled: a change throughout is seen, and one of its size.
  write("large", std::string(20 << 20, 'a'));
  const std::string large = path_hash(folder / "large");
  write("large", std::string(20 << 20, 'b'));
  EXPECT_NE(path_hash(folder / "large"), large);
  write("large", std::string((20 << 20) + 1, 'a'));
  EXPECT_NE(path_hash(folder / "large"), large);
  EXPECT_THROW(path_hash(folder / "absent"), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace focus

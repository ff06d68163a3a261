#include "base/python_script.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace focus {
namespace {

TEST(LineServer, AnswersLineByLine) {
  LineServer echo({"cat"});
  EXPECT_EQ(echo.ask("one"), "one");
  const std::string large(1 << 20, 'x');
  LineServer editor({"sed", "-u", "s/x$/y/"});
  EXPECT_EQ(editor.ask(large), large.substr(1) + "y");
  EXPECT_EQ(editor.ask(""), "");
  EXPECT_EQ(echo.ask("two"), "two");
}

TEST(LineServer, NamesAProgramThatHasEndedOrIsNotThere) {
  LineServer over({"true"});
  LineServer absent({"/nonexistent/program"});
  for (LineServer* server : {&over, &absent}) {
    try {
      for (int i = 0; i < 1000; ++i) server->ask("x");
      FAIL() << "answered";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("cannot be run or has ended"), std::string::npos);
    }
  }
}

TEST(RunAndWait, GivesTheExitStatus) {
  EXPECT_EQ(run_and_wait({"sh", "-c", "exit 3"}), 3);
  EXPECT_EQ(run_and_wait({"/nonexistent/program"}), 127);
  EXPECT_THROW(run_and_wait({"sh", "-c", "kill -9 $$"}), Error);
}

TEST(FindScript, NamesBothPlaces) {
  try {
    find_script("no-such-script.py");
    FAIL() << "found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("share/focus/no-such-script.py"), std::string::npos);
  }
}

}  // namespace
}  // namespace focus

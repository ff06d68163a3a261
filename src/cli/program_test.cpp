#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/output.h"

namespace focus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::function<int(const RunContext&)> body;

class Probe : public Command {
 public:
  void declare(OptionTable& table) override { common_.declare(table, kSeedFlag); }
  int run(const RunContext& context) override { return body(context); }
};

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& arguments) {
  const std::vector<CommandEntry> entries = {
      {"probe", "runs what a test asks for", [] { return std::unique_ptr<Command>(new Probe); }}};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_program(arguments, entries);
  set_log_level(LogLevel::kInfo);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

Outcome run_throwing(std::function<void()> action) {
  body = [action](const RunContext&) {
    action();
    return 0;
  };
  return run({"probe", "--quiet"});
}

TEST(Program, HelpAndVersionGoToStandardOutput) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("probe       runs what a test asks for"));
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, MatchesRegex("focus [0-9.]+ \\(commit [0-9a-z-]+, .*\\), torch [0-9]+\\..*\n"));
  const Outcome help = run({"probe", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Usage: focus probe [flags]"), HasSubstr("--seed N")));
}

TEST(Program, UsageErrorsExitWithTwo) {
  for (const Outcome& outcome : {run({}), run({"prob"}), run({"--seed"}), run({"probe", "--sed", "1"}),
                                 run({"probe", "--quiet", "--verbose"}), run({"probe", "--device", "tpu"})}) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err, "");
  }
  EXPECT_EQ(run({"prob"}).err, "focus: error: unknown command 'prob'; did you mean probe?\n");
  EXPECT_EQ(run({"probe", "--sed", "1"}).err, "focus: error: unknown flag --sed; did you mean --seed?\n");
}

TEST(Program, ExitCodeOfTheCommandIsPassedOn) {
  body = [](const RunContext&) { return 5; };
  EXPECT_EQ(run({"probe"}).code, 5);
}

TEST(Program, ExceptionsBecomeOneLine) {
  EXPECT_EQ(run_throwing([] { fail("a.bin: two\nlines\n"); }).err, "focus: error: a.bin: two lines\n");
  EXPECT_EQ(run_throwing([] { fail("x"); }).code, 1);
  EXPECT_EQ(run_throwing([] { fail_usage("x"); }).code, 2);
  EXPECT_THAT(run_throwing([] { throw std::bad_alloc(); }).err, HasSubstr("focus: error: out of memory"));
  EXPECT_EQ(run_throwing([] { throw std::runtime_error("odd"); }).err, "focus: error: odd\n");
  const Outcome torch = run_throwing([] { at::ones({2, 3}).matmul(at::ones({2, 3})); });
  EXPECT_EQ(torch.code, 1);
  EXPECT_THAT(torch.err, AllOf(HasSubstr("focus: error: mat1 and mat2 shapes cannot be multiplied"),
                               Not(HasSubstr("Exception raised from"))));
  EXPECT_EQ(std::count(torch.err.begin(), torch.err.end(), '\n'), 1);
}

TEST(Program, WhatLibrariesThrowIsSaidInOurWords) {
  const std::string name(300, 'x');
  EXPECT_EQ(run_throwing([&] { static_cast<void>(std::filesystem::exists("/" + name)); }).err,
            "focus: error: /" + name + ": File name too long\n");
  EXPECT_EQ(run_throwing([] { static_cast<void>(nlohmann::json(3).get<std::string>()); }).err,
            "focus: error: JSON (type must be string, but is number)\n");
}

TEST(Program, HelpIsACommandToo) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "probe"}).out, run({"probe", "--help"}).out);
  EXPECT_EQ(run({"help", "prob"}).code, 2);
  EXPECT_EQ(run({"help", "probe", "x"}).code, 2);
}

TEST(Program, FailedAllocationsAreCalledOutOfMemory) {
  const Outcome outcome = run_throwing([] { at::empty({int64_t{1} << 50}); });
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("focus: error: out of memory"));
}

TEST(Program, BrokenPipeIsNoError) {
  const Outcome outcome = run_throwing([] { throw BrokenPipe(); });
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST(Program, ThreadsAndLogLevelAreApplied) {
  const int before = at::get_num_threads();
  body = [](const RunContext& context) {
    log_info("hello");
    log_warning("mind");
    EXPECT_EQ(context.threads, 1);
    EXPECT_EQ(at::get_num_threads(), 1);
    EXPECT_EQ(context.device, at::Device(at::kCPU));
    write_json_line({{"ok", true}});
    return 0;
  };
  const Outcome loud = run({"probe", "--threads", "1", "--json"});
  EXPECT_EQ(loud.err, "hello\nfocus: warning: mind\n");
  EXPECT_EQ(loud.out, "{\"ok\":true}\n");
  EXPECT_EQ(run({"probe", "--threads", "1", "--quiet"}).err, "focus: warning: mind\n");
  at::set_num_threads(before);
}

TEST(Device, NamesAreChecked) {
  EXPECT_EQ(open_device("cpu"), at::Device(at::kCPU));
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "CPU"}) {
    EXPECT_THROW(open_device(name), UsageError) << name;
  }
  EXPECT_EQ(parse_dtype("bfloat16"), at::kBFloat16);
  EXPECT_EQ(parse_dtype(std::nullopt), std::nullopt);
  EXPECT_THROW(parse_dtype("float8"), UsageError);
}

TEST(Device, CudaIsUsableOrRefusedWithTheReason) {
  try {
    const at::Device device = open_device("cuda");
    EXPECT_EQ(at::ones({3}, at::TensorOptions().device(device)).sum().item<float>(), 3);
    EXPECT_THROW(open_device("cuda:99"), Error);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--device cuda: "));
  }
}

}  // namespace
}  // namespace focus

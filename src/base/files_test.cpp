#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <fstream>

#include "base/error.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "focus_files_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  template <typename Action>
  std::string error(Action action) {
    try {
      action();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {})); }

  fs::path folder_;
};

TEST_F(Files, WritesAndReads) {
  const std::string content("a\0b\n", 4);
  write_file_atomically(folder_ / "x", content);
  EXPECT_EQ(read_file(folder_ / "x"), content);
  write_file_atomically(folder_ / "x", "");
  EXPECT_EQ(read_file(folder_ / "x"), "");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ReadErrorsNameThePathAndReason) {
  EXPECT_THAT(error([&] { read_file(folder_ / "none"); }), HasSubstr("none: No such file"));
  EXPECT_THAT(error([&] { read_file(folder_); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error([&] { read_text_or_gzip(folder_ / "none.gz"); }), HasSubstr("none.gz: No such file"));
}

TEST_F(Files, WriteErrorsLeaveNothingBehind) {
  EXPECT_THAT(error([&] { write_file_atomically(folder_ / "no" / "x", "a"); }), HasSubstr("No such file"));
  fs::create_directories(folder_ / "taken" / "inside");
  EXPECT_THAT(error([&] { write_file_atomically(folder_ / "taken", "a"); }), HasSubstr("rename"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, FullDiskIsReported) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  // The temporary file of this process and name, put there as a link to a device that is always full.
  const fs::path temporary = folder_ / fmt::format(".x.tmp-{}", ::getpid());
  fs::create_symlink("/dev/full", temporary);
  EXPECT_THAT(error([&] { write_file_atomically(folder_ / "x", "abc"); }), HasSubstr("No space left"));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, GzipIsUnpackedAndPlainTextPassedThrough) {
  const std::string text(300000, 'x');
  gzFile out = gzopen((folder_ / "a.gz").c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  EXPECT_EQ(read_text_or_gzip(folder_ / "a.gz"), text);
  write_file_atomically(folder_ / "plain.txt", "plain");
  EXPECT_EQ(read_text_or_gzip(folder_ / "plain.txt"), "plain");
  write_file_atomically(folder_ / "plain.gz", "plain");
  EXPECT_THAT(error([&] { read_text_or_gzip(folder_ / "plain.gz"); }), HasSubstr("plain.gz: not gzip data"));
  write_file_atomically(folder_ / "empty.gz", "");
  EXPECT_EQ(read_text_or_gzip(folder_ / "empty.gz"), "");
}

TEST_F(Files, DamagedGzipIsAnError) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += std::to_string(i * 7919 % 10007);
  gzFile out = gzopen((folder_ / "a.gz").c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  const std::string packed = read_file(folder_ / "a.gz");
  for (size_t size : {size_t{12}, packed.size() / 2, packed.size() - 9, packed.size() - 1}) {
    write_file_atomically(folder_ / "cut.gz", packed.substr(0, size));
    EXPECT_THAT(error([&] { read_text_or_gzip(folder_ / "cut.gz"); }), HasSubstr("cut.gz: damaged or cut-off")) << size;
  }
  std::string flipped = packed;
  flipped[packed.size() / 2] ^= 0x55;
  write_file_atomically(folder_ / "flipped.gz", flipped);
  EXPECT_THAT(error([&] { read_text_or_gzip(folder_ / "flipped.gz"); }), HasSubstr("damaged"));
}

TEST_F(Files, OutputFolderIsCreatedAndProbed) {
  prepare_output_folder(folder_ / "a" / "b", "--out");
  EXPECT_TRUE(fs::is_empty(folder_ / "a" / "b"));
  prepare_output_folder(folder_ / "a" / "b", "--out");
  write_file_atomically(folder_ / "file", "x");
  EXPECT_THAT(error([&] { prepare_output_folder(folder_ / "file", "--out"); }), HasSubstr("--out"));
  EXPECT_THAT(error([&] { prepare_output_folder(folder_ / "file" / "b", "--out"); }), HasSubstr("cannot create"));
  EXPECT_THAT(error([&] { prepare_output_folder("/proc/focus", "--out"); }), HasSubstr("--out /proc/focus"));
}

TEST_F(Files, PendingFolderAppearsWhole) {
  const fs::path final_path = folder_ / "checkpoint-1";
  {
    PendingFolder pending(final_path);
    write_file_atomically(pending.path() / "a", "1");
    EXPECT_FALSE(fs::exists(final_path));
  }
  EXPECT_EQ(entries(), 0u);
  for (const char* content : {"1", "2"}) {
    PendingFolder pending(final_path, {"1"});
    write_file_atomically(pending.path() / content, content);
    pending.publish();
    EXPECT_EQ(read_file(final_path / content), content);
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_FALSE(fs::exists(final_path / "1"));
}

TEST_F(Files, PendingFolderTakesATrailingSlash) {
  PendingFolder pending(folder_ / "out/");
  pending.publish();
  EXPECT_TRUE(fs::is_directory(folder_ / "out"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, PendingFolderKeepsWhatOthersPutThere) {
  const fs::path target = folder_ / "out";
  fs::create_directories(target / "mine");
  write_file_atomically(target / "notes.md", "precious");
  write_file_atomically(target / "mine" / "a.txt", "a");
  write_file_atomically(target / "old.tokens", "stale");
  write_file_atomically(target / "new.tokens", "stale too");
  fs::create_symlink("nowhere", target / "link");
  PendingFolder pending(target, {".tokens"});
  write_file_atomically(pending.path() / "new.tokens", "fresh");
  pending.publish();
  EXPECT_EQ(read_file(target / "notes.md"), "precious");
  EXPECT_EQ(read_file(target / "mine" / "a.txt"), "a");
  EXPECT_EQ(read_file(target / "new.tokens"), "fresh");
  EXPECT_TRUE(fs::is_symlink(target / "link"));
  EXPECT_FALSE(fs::exists(target / "old.tokens"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, PendingFolderBehindALinkLeavesTheLink) {
  fs::create_directories(folder_ / "disk" / "real");
  fs::create_directory_symlink(folder_ / "disk" / "real", folder_ / "out");
  PendingFolder pending(folder_ / "out");
  write_file_atomically(pending.path() / "x", "new");
  pending.publish();
  EXPECT_TRUE(fs::is_symlink(folder_ / "out"));
  EXPECT_EQ(read_file(folder_ / "disk" / "real" / "x"), "new");
}

TEST_F(Files, ALockedFolderIsForOneRun) {
  {
    const FolderLock lock(folder_, "--out");
    EXPECT_THAT(error([&] { const FolderLock second(folder_, "--out"); }), HasSubstr("another run is writing there"));
  }
  EXPECT_EQ(error([&] { const FolderLock after(folder_, "--out"); }), "no error");
}

TEST_F(Files, WhatKilledWritersLeftIsRemoved) {
  fs::create_directories(folder_ / ".checkpoint-3.tmp-999999999");  // No process has such a number.
  write_file_atomically(folder_ / ".checkpoint-3.tmp-999999999/state", "half");
  write_file_atomically(folder_ / ".a.txt.tmp-999999999", "half");
  const std::vector<std::string> kept = {fmt::format(".b.tmp-{}", ::getpid()), ".c.old-999999999", ".d.tmp-",
                                         "e.tmp-999999999"};
  for (const std::string& name : kept) write_file_atomically(folder_ / name, "kept");
  prepare_output_folder(folder_, "--out");
  EXPECT_EQ(entries(), kept.size());
  for (const std::string& name : kept) EXPECT_EQ(read_file(folder_ / name), "kept");
}

TEST_F(Files, DiscardedFolderIsGone) {
  fs::create_directories(folder_ / "old/inner");
  discard_folder(folder_ / "old");
  EXPECT_EQ(entries(), 0u);
  discard_folder(folder_ / "absent");
}

}  // namespace
}  // namespace focus

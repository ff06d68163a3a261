#include "data/token_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "data/token_windows.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct TokenShardsTest : ::testing::Test {
  fs::path folder = fs::temp_directory_path() / fmt::format("focus-shards-{}", ::getpid());
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }

  int64_t write(const std::vector<Document>& documents, int64_t vocab, int64_t shard_tokens) const {
    TokenShardWriter writer(folder, {.vocab_size = vocab, .tokenizer_hash = 77}, shard_tokens);
    for (const Document& document : documents) writer.add(document);
    return writer.finish();
  }
  fs::path file(int index) const { return folder / fmt::format("shard-{:05}.tokens", index); }

  std::string error() const {
    try {
      const auto shards = TokenShards::open(folder);
      for (int64_t d = 0; d < shards->documents(); ++d) shards->document(d, shards->length(d));
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  template <typename T>
  void overwrite(const fs::path& path, size_t at, T value) const {
    std::string content = read_file(path);
    content.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    std::ofstream(path, std::ios::binary) << content;
  }
};

std::vector<Document> some_documents(int64_t vocab) {
  std::vector<Document> documents;
  for (int32_t d = 0; d < 9; ++d) {
    Document document;
    for (int32_t t = 0; t < 1 + 17 * d % 40; ++t) document.push_back(static_cast<int32_t>((t * 7919 + d * 31) % vocab));
    documents.push_back(document);
  }
  return documents;
}

TEST_F(TokenShardsTest, WhatIsWrittenIsReadInBothWidths) {
  for (const int64_t vocab : {65536, 65537}) {
    const auto documents = some_documents(vocab);
    EXPECT_GT(write(documents, vocab, 50), 2);
    const auto shards = TokenShards::open(folder);
    ASSERT_EQ(shards->documents(), std::ssize(documents));
    EXPECT_EQ(shards->format().vocab_size, vocab);
    EXPECT_EQ(shards->format().tokenizer_hash, 77u);
    for (int64_t d = 0; d < shards->documents(); ++d) EXPECT_EQ(shards->document(d, 1000), documents[d]);
    EXPECT_EQ(fs::file_size(file(0)), 64u + 3 * 8 + 54 * (vocab == 65536 ? 2 : 4));
  }
}

TEST_F(TokenShardsTest, WindowsAreThoseOfTheSameDocumentsInMemory) {
  EXPECT_TRUE(rc::check([&] {
    const auto lengths = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 30));
    const auto length = *rc::gen::inRange<int64_t>(1, 12);
    std::vector<Document> documents;
    int64_t total = 0;
    for (const int64_t n : lengths) {
      Document document;
      for (int64_t t = 0; t < n; ++t) document.push_back(static_cast<int32_t>(total++));
      documents.push_back(document);
    }
    RC_PRE(total >= length);
    fs::remove_all(folder);
    write(documents, 10'000, *rc::gen::inRange<int64_t>(1, 100));
    TrainWindows stored(TokenShards::open(folder), length, 5, "shards"), memory(documents, length, 5, "memory");
    RC_ASSERT(stored.windows_per_epoch() == memory.windows_per_epoch());
    for (int64_t i = 0; i < 2 * memory.windows_per_epoch(); ++i) {
      const auto a = stored.next(), b = memory.next();
      RC_ASSERT(a.ids == b.ids);
      RC_ASSERT(a.document_start == b.document_start);
    }
  }));
}

TEST_F(TokenShardsTest, TheFingerprintChangesWithTokensAndBorders) {
  const auto fingerprint = [&](const std::vector<Document>& documents) {
    fs::remove_all(folder);
    write(documents, 100, 1000);
    return TokenShards::open(folder)->fingerprint();
  };
  const uint64_t first = fingerprint({{1, 2, 3}, {4}});
  EXPECT_EQ(fingerprint({{1, 2, 3}, {4}}), first);
  EXPECT_NE(fingerprint({{1, 2, 3}, {5}}), first);
  EXPECT_NE(fingerprint({{1, 2}, {3, 4}}), first);
}

TEST_F(TokenShardsTest, DamagedFilesAreRefused) {
  struct Damage {
    size_t at;
    uint64_t value;
    bool wide;
    const char* message;
  };
  const std::vector<Damage> damages = {
      {0, 0, false, "does not begin so"},
      {8, 2, false, "version 2"},
      {12, 3, false, "3 bytes a token"},
      {16, 53, true, "do not make"},
      {16, ~uint64_t{0}, true, "do not make"},
      {24, 0, true, "do not make"},
      {24, uint64_t{1} << 61, true, "do not make"},
      {24, ~uint64_t{0}, true, "do not make"},
      {32, 0, true, "a vocabulary of 0"},
      {32, 70'000, true, "a vocabulary of 70000"},
      {32, 400, true, "another tokenizer"},
      {40, 78, true, "another tokenizer"},
      {56, 1, false, "number 1 of 3"},
      {60, 0, false, "number 0 of 0"},
      {60, 4, false, "missing or mixed"},
      {64, 0, true, "document 0 ends at 0"},
      {72, 1, true, "document 1 ends at 1"},
      {64 + 2 * 8, 60, true, "the last document ends at 60 of 54"},
  };
  for (const Damage& damage : damages) {
    fs::remove_all(folder);
    ASSERT_EQ(write(some_documents(500), 500, 50), 3);
    EXPECT_EQ(error(), "");
    if (damage.wide) {
      overwrite(file(0), damage.at, damage.value);
    } else {
      overwrite(file(0), damage.at, static_cast<uint32_t>(damage.value));
    }
    EXPECT_THAT(error(), HasSubstr(damage.message)) << damage.at;
    EXPECT_EQ(error().find('\n'), std::string::npos);
  }
}

TEST_F(TokenShardsTest, IdsOutsideTheVocabularyAreRefusedWhenRead) {
  ASSERT_EQ(write(some_documents(500), 500, 1000), 1);
  overwrite(file(0), 32, uint64_t{5});
  EXPECT_NO_THROW(TokenShards::open(folder));
  EXPECT_THAT(error(), HasSubstr("outside the vocabulary of 5"));
}

TEST_F(TokenShardsTest, CutAndMissingFilesAreRefused) {
  write(some_documents(500), 500, 50);
  for (const uintmax_t size : {0, 63, 64, 100, 199}) {
    fs::resize_file(file(1), size);
    EXPECT_THAT(error(), HasSubstr("shard-00001.tokens")) << size;
  }
  fs::remove(file(1));
  EXPECT_THAT(error(), HasSubstr("missing or mixed"));
  fs::remove_all(folder);
  EXPECT_FALSE(TokenShards::is_shards(folder));
  EXPECT_NE(error(), "");
}

TEST_F(TokenShardsTest, WriterKeepsWhatItShouldNotTouch) {
  fs::create_directories(folder);
  std::ofstream(folder / "thesis.txt") << "precious";
  EXPECT_THROW(write({{1}}, 10, 10), Error);
  EXPECT_TRUE(fs::exists(folder / "thesis.txt"));
  fs::remove_all(folder);
  EXPECT_THROW(write({{10}}, 10, 10), Error);
  EXPECT_THROW(write({{}}, 10, 10), Error);
  EXPECT_THROW(write({}, 10, 10), Error);
  EXPECT_FALSE(fs::exists(folder));
}

}  // namespace
}  // namespace focus

#include "weights/safetensors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "weights/safetensors_header.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path temporary(const std::string& name) {
  return fs::temp_directory_path() / fmt::format("{}-{}", ::getpid(), name);
}

/// A file with this header text and `data` bytes of content.
std::string image(const std::string& header, size_t data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(data, '\1');
}

std::string image(const json& header, size_t data) {
  return image(header.dump(), data);
}

json entry(const std::string& dtype, const json& shape, const json& offsets) {
  return {{"dtype", dtype}, {"shape", shape}, {"data_offsets", offsets}};
}

/// The message with which a file image is refused; "" if it is accepted.
std::string refusal(const std::string& bytes) {
  try {
    parse_safetensors_header(bytes, "x.safetensors");
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

void expect_refused(const std::string& bytes, const std::string& words) {
  const std::string message = refusal(bytes);
  EXPECT_TRUE(message.starts_with("x.safetensors: ")) << message;
  EXPECT_NE(message.find(words), std::string::npos) << message << " lacks: " << words;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(SafetensorsHeader, RefusesBadLengths) {
  expect_refused("", "0 bytes, at least 8 expected");
  expect_refused("1234567", "7 bytes, at least 8 expected");
  expect_refused(std::string("\x00\x00\x00\x00\x00\x00\x00\x80", 8) + "{}", "9223372036854775808");
  expect_refused(std::string(8, '\xff') + "{}", "18446744073709551615");
  expect_refused(std::string("\x01\xe1\xf5\x05\x00\x00\x00\x00", 8) + "{}", "limit of 100000000");
  expect_refused(std::string("\x10\x00\x00\x00\x00\x00\x00\x00", 8) + "{}", "truncated: the header claims 16 bytes");
  expect_refused(std::string(8, '\0'), "does not begin with '{'");
}

TEST(SafetensorsHeader, RefusesBadJson) {
  expect_refused(image(std::string("{\"a\":"), 0), "not valid JSON");
  expect_refused(image(std::string("[1]"), 0), "does not begin with '{'");
  expect_refused(image(std::string("{\"\xff\":1}"), 0), "not valid JSON");
  expect_refused(
      image(std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],)"
                        R"("data_offsets":[1,2]}})"),
            2),
      "'a' appears twice");
  expect_refused(image(json{{"a", 3}}, 0), "not an object");
  expect_refused(image(json{{"a", {{"dtype", "U8"}, {"shape", json::array()}}}}, 0), "has no data_offsets");
  expect_refused(image(json{{"__metadata__", {{"a", 3}}}}, 0), "__metadata__ 'a' is not a string");
  expect_refused(image(json{{"__metadata__", 3}}, 0), "__metadata__ is not an object");
}

TEST(SafetensorsHeader, RefusesBadTensors) {
  expect_refused(image(json{{"a", entry("F8", {1}, {0, 1})}}, 1), "unknown dtype 'F8' (known: F64, F32");
  expect_refused(image(json{{"a", entry("U8", {-1}, {0, 1})}}, 1), "not a non-negative integer");
  expect_refused(image(json{{"a", entry("U8", {1.5}, {0, 1})}}, 1), "not a non-negative integer");
  expect_refused(image(json{{"a", entry("U8", 1, {0, 1})}}, 1), "shape is not a list");
  expect_refused(image(json{{"a", entry("F32", {4294967296, 4294967296}, {0, 4})}}, 4), "overflows");
  expect_refused(image(json{{"a", entry("U8", {std::numeric_limits<uint64_t>::max()}, {0, 1})}}, 1), "overflows");
  expect_refused(image(json{{"a", entry("F32", {1}, {4, 0})}}, 4), "reversed (4 > 0)");
  expect_refused(image(json{{"a", entry("F32", {2}, {0, 4})}}, 4), "take 8 bytes, its offsets hold 4");
  expect_refused(image(json{{"a", entry("F32", {1}, {0, 4})}}, 3),
                 "ends at byte 4 of the data, but the file holds only 3");
  expect_refused(image(json{{"a", entry("F32", {1}, {0, 4})}}, 6), "2 bytes after the last tensor");
  expect_refused(image(json{{"a", entry("F32", {1}, {4, 8})}}, 8), "4 unused bytes before tensor 'a'");
  expect_refused(image(json{{"a", entry("F32", {2}, {0, 8})}, {"b", entry("F32", {1}, {4, 8})}}, 8), "overlaps");
  expect_refused(image(json{{"a", entry("F32", {1}, {0, 4})}, {"b", entry("F32", {1}, {0, 4})}}, 4), "overlaps");
  expect_refused(image(json{{"a", entry("F32", {1}, {0})}}, 4), "not a list of two numbers");
  EXPECT_EQ(refusal(image(json{{"a", entry("F32", json::array(), {0, 4})}, {"b", entry("F32", {0, 5}, {0, 0})}}, 4)),
            "");
  EXPECT_EQ(refusal(image(std::string("{}   "), 0)), "");
}

/// Deeply nested or huge input ends in an error, not in a crash.
TEST(SafetensorsHeader, SurvivesDeepNesting) {
  EXPECT_NE(refusal(image("{\"a\":" + std::string(200'000, '['), 0)), "");
  EXPECT_NE(refusal(image("{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}", 0)), "");
}

/// One tensor of every dtype, odd shapes included.
std::vector<std::pair<std::string, at::Tensor>> samples() {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const at::ScalarType dtype : {at::kByte, at::kBool, at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                     at::kInt, at::kShort, at::kChar}) {
    tensors.emplace_back(fmt::format("t.{}", c10::toString(dtype)), at::arange(15).to(dtype).view({3, 5}));
  }
  tensors.emplace_back("scalar", at::scalar_tensor(2.5));
  tensors.emplace_back("empty", at::empty({0, 7}));
  tensors.emplace_back("strided", at::arange(24, at::kFloat).view({4, 6}).t());
  return tensors;
}

TEST(Safetensors, ReadsWhatItWrites) {
  const fs::path file = temporary("round.safetensors");
  write_safetensors(file, samples(), {{"format", "pt"}, {"text", "a \"quoted\" \n é"}});
  const SafetensorsFile read = SafetensorsFile::open(file);
  EXPECT_EQ(read.names().size(), samples().size());
  EXPECT_EQ(read.metadata().at("text"), "a \"quoted\" \n é");
  for (const auto& [name, tensor] : samples()) {
    const at::Tensor back = read.tensor(name);
    EXPECT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(back, tensor)) << name;
  }
  EXPECT_FALSE(read.contains("other"));
  EXPECT_THROW(read.tensor("other"), Error);
  fs::remove(file);
}

TEST(Safetensors, TensorsOutliveTheFileAndNeverWriteToIt) {
  const fs::path file = temporary("private.safetensors");
  write_safetensors(file, {{"a", at::ones({100})}});
  at::Tensor view = SafetensorsFile::open(file).tensor("a");
  view.fill_(7);
  EXPECT_EQ(view.sum().item<float>(), 700);
  EXPECT_EQ(SafetensorsFile::open(file).tensor("a").sum().item<float>(), 100);
  fs::remove(file);
}

TEST(Safetensors, CopiesMisalignedDataAndCleansBools) {
  const fs::path file = temporary("odd.safetensors");
  const json header = {
      {"a", entry("U8", {1}, {0, 1})}, {"b", entry("F32", {2}, {1, 9})}, {"c", entry("BOOL", {2}, {9, 11})}};
  std::string text = header.dump();
  std::string bytes = image(text + std::string(8 - text.size() % 8, ' '), 11);
  const float values[2] = {1.5f, -2.0f};
  std::memcpy(bytes.data() + bytes.size() - 10, values, 8);
  bytes[bytes.size() - 1] = 0;
  bytes[bytes.size() - 2] = 77;
  write_file_atomically(file, bytes);
  const SafetensorsFile read = SafetensorsFile::open(file);
  EXPECT_TRUE(at::equal(read.tensor("b"), at::tensor({1.5f, -2.0f})));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.tensor("b").data_ptr()) % 4, 0u);
  EXPECT_TRUE(at::equal(read.tensor("c"), at::tensor({1, 0}).to(at::kBool)));
  fs::remove(file);
}

TEST(Safetensors, NamesFilesThatCannotBeReadOrWritten) {
  EXPECT_THROW(SafetensorsFile::open("/nonexistent/x.safetensors"), Error);
  EXPECT_THROW(SafetensorsFile::open(fs::temp_directory_path()), Error);
  EXPECT_THROW(write_safetensors("/nonexistent/x.safetensors", {{"a", at::ones({1})}}), Error);
  const fs::path file = temporary("never.safetensors");
  EXPECT_THROW(write_safetensors(file, {{"a", at::ones({1})}, {"a", at::ones({1})}}), Error);
  EXPECT_THROW(write_safetensors(file, {{"__metadata__", at::ones({1})}}), Error);
  EXPECT_THROW(write_safetensors(file, {{"a\xff", at::ones({1})}}), Error);
  EXPECT_THROW(write_safetensors(file, {{"a", at::Tensor()}}), Error);
  EXPECT_THROW(write_safetensors(file, {{"a", at::zeros({1}, at::kComplexFloat)}}), Error);
  EXPECT_FALSE(fs::exists(file));
}

/// A write that fails half-way, here at a file size limit as on a full disk, leaves the former file and nothing else.
TEST(Safetensors, AFailedWriteKeepsTheFormerFile) {
  const fs::path folder = temporary("full");
  fs::create_directories(folder / "taken");
  const fs::path file = folder / "x.safetensors";
  write_safetensors(file, {{"a", at::ones({1})}});

  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {4096, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    write_safetensors(file, {{"a", at::zeros({100'000})}});
  } catch (const Error& e) {
    message = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
  EXPECT_EQ(SafetensorsFile::open(file).tensor("a").sum().item<float>(), 1);
  EXPECT_THROW(write_safetensors(folder / "taken", {{"a", at::ones({1})}}), Error);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 2) << "a temporary file was left";
  fs::remove_all(folder);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const fs::path file = temporary("cut.safetensors");
  write_safetensors(file, {{"a", at::ones({3, 2})}, {"b", at::ones({5}, at::kBFloat16)}});
  const std::string bytes = read_file(file);
  EXPECT_EQ(refusal(bytes), "");
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = refusal(bytes.substr(0, size));
    EXPECT_NE(message, "") << "accepted at " << size << " of " << bytes.size() << " bytes";
    EXPECT_NE(message.find_first_of("0123456789"), std::string::npos) << message;
  }
  EXPECT_NE(refusal(bytes + "x"), "");
  fs::remove(file);
}

RC_GTEST_PROP(Safetensors, DamagedBytesNeverCrash, ()) {
  static const std::string good = [] {
    const fs::path file = temporary("good.safetensors");
    write_safetensors(file, {{"a", at::ones({3, 2})}, {"b", at::ones({5}, at::kLong)}}, {{"k", "v"}});
    std::string bytes = read_file(file);
    fs::remove(file);
    return bytes;
  }();
  std::string bytes = good;
  const auto edits = *rc::gen::container<std::vector<std::pair<size_t, char>>>(
      rc::gen::pair(rc::gen::inRange<size_t>(0, bytes.size()), rc::gen::arbitrary<char>()));
  for (const auto& [position, value] : edits) bytes[position] = value;
  try {
    const SafetensorsHeader header = parse_safetensors_header(bytes, "x");
    uint64_t total = header.data_start;
    for (const SafetensorsEntry& e : header.entries) total += e.end - e.begin;
    RC_ASSERT(total == bytes.size());
  } catch (const Error&) {
  }
}

RC_GTEST_PROP(Safetensors, RandomShapesComeBack, ()) {
  const auto shapes = *rc::gen::container<std::vector<std::vector<int64_t>>>(
      rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 4)));
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const std::vector<int64_t>& shape : shapes) {
    if (shape.size() > 6) continue;
    const at::ScalarType dtype = *rc::gen::element(at::kFloat, at::kBFloat16, at::kLong, at::kByte);
    tensors.emplace_back(fmt::format("t{}", tensors.size()), at::randint(100, shape).to(dtype));
  }
  const fs::path file = temporary("shapes.safetensors");
  write_safetensors(file, tensors);
  const SafetensorsFile read = SafetensorsFile::open(file);
  for (const auto& [name, tensor] : tensors) RC_ASSERT(at::equal(read.tensor(name), tensor));
  fs::remove(file);
}

}  // namespace
}  // namespace focus

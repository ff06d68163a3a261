#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <sstream>
#include <utility>

#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/unicode.h"

namespace focus {
namespace {

using nlohmann::json;

std::filesystem::path path_of(const std::string& name) {
  if (name == "tok512") return project_root() / "data/models/stories260K/tokenizer.json";
  if (name == "gemma512") return project_root() / "data/tokenizers/gemma-style-512";
  if (name == "llama2") return project_root() / "../shared/data/tokenizers/llama2";
  return project_root() / "data/tokenizers" / name;
}

// Null, with a note, for the one whose licence keeps it out of the project where it does not lie beside it.
const Tokenizer* find_tokenizer(const std::string& name) {
  static std::map<std::string, Tokenizer> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return &found->second;
  if (name == "llama2" && !std::filesystem::exists(path_of(name))) {
    std::cout << "note: " << path_of(name) << " is not here, so Llama 2's vectors are not checked\n";
    return nullptr;
  }
  return &loaded.emplace(name, Tokenizer::load(path_of(name))).first->second;
}

std::string read_vectors(const std::string& name) {
  return read_maybe_gzip(project_root() / "data/tokenizers/vectors" / name);
}

std::string joined(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special_tokens) {
  StreamDecoder stream(tokenizer, skip_special_tokens);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = stream.push(id);
    EXPECT_EQ(json(piece).dump(-1, ' ', false, json::error_handler_t::ignore), json(piece).dump())
        << "half a character";
    text += piece;
  }
  return text + stream.finish();
}

class Vectors : public testing::TestWithParam<const char*> {};

TEST_P(Vectors, EqualHuggingFaceTokenizers) {
  const Tokenizer* tokenizer = find_tokenizer(GetParam());
  if (tokenizer == nullptr) GTEST_SKIP();
  std::istringstream lines(read_vectors(std::string("hf_") + GetParam() + ".jsonl.gz"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json vector = json::parse(line);
    const auto text = vector["text"].get<std::string>();
    const auto ids = vector["ids"].get<std::vector<int32_t>>();
    const auto decoded = vector["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer->encode(text, true), vector["ids_special"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), decoded);
    EXPECT_EQ(joined(*tokenizer, ids, false), decoded);
    if (vector["tokens"].is_null()) continue;  // left out of the file for long texts
    std::vector<std::string> tokens;
    for (const int32_t id : ids) tokens.push_back(tokenizer->token_of(id));
    EXPECT_EQ(tokens, vector["tokens"].get<std::vector<std::string>>()) << text;
  }
  EXPECT_EQ(count, 106);
}

INSTANTIATE_TEST_SUITE_P(All, Vectors,
                         testing::Values("gpt2", "smollm2", "qwen2", "olmo2", "llama2", "mistral", "tok512",
                                         "gemma512"),
                         [](const auto& test) { return std::string(test.param); });

TEST(PublishedVectors, LlamaCpp) {
  const json all = json::parse(read_vectors("llama_cpp_vocab_tests.json.gz"));
  for (const std::string name : {"gpt2", "llama2", "qwen2"}) {
    const Tokenizer* tokenizer = find_tokenizer(name);
    if (tokenizer == nullptr) continue;
    EXPECT_EQ(all[name].size(), 47u);
    for (const json& vector : all[name]) {
      const auto text = vector["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, false), vector["ids"].get<std::vector<int32_t>>()) << name << ": " << text;
    }
  }
}

TEST(PublishedVectors, SwiftTransformers) {
  const json all = json::parse(read_vectors("swift_transformers_tokenizer_tests.json.gz"));
  const std::pair<std::string, std::string> names[] = {{"gpt2", "distilgpt2"},
                                                       {"llama2", "coreml-projects/Llama-2-7b-chat-coreml"}};
  for (const auto& [name, published] : names) {
    const Tokenizer* tokenizer = find_tokenizer(name);
    if (tokenizer == nullptr) continue;
    EXPECT_EQ(all[published].size(), 18u);
    for (const json& vector : all[published]) {
      const auto text = vector["input"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, true), vector["encoded"]["input_ids"].get<std::vector<int32_t>>())
          << name << ": " << text;
    }
  }
}

TEST(PublishedVectors, TransformersJs) {
  const json all = json::parse(read_vectors("transformers_js_tests.json.gz"));
  const std::pair<std::string, std::string> names[] = {{"gpt2", "Xenova/gpt2"},
                                                       {"gpt2", "openai-community/gpt2"},
                                                       {"llama2", "Xenova/llama-tokenizer"},
                                                       {"qwen2", "Xenova/Qwen1.5-0.5B-Chat"}};
  for (const auto& [name, published] : names) {
    const Tokenizer* tokenizer = find_tokenizer(name);
    if (tokenizer == nullptr) continue;
    EXPECT_GE(all[published].size(), 25u);
    for (const json& vector : all[published]) {
      const auto text = vector["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, true), vector["ids"].get<std::vector<int32_t>>()) << name << ": " << text;
    }
  }
}

}  // namespace
}  // namespace focus

#include <gtest/gtest.h>

#include <iostream>
#include <sstream>

#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer_file.h"

namespace focus {
namespace {

using nlohmann::json;

std::filesystem::path find_tokenizer(const std::string& name) {
  if (name == "tok512") return project_root() / "data/models/stories260K/tokenizer.json";
  if (name == "gemma512") return project_root() / "data/tokenizers/gemma-style-512";
  if (name == "llama2") return project_root() / "../shared/data/tokenizers/llama2";
  return project_root() / "data/tokenizers" / name;
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

class Vectors : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path path = find_tokenizer(GetParam());
    if (std::string(GetParam()) == "llama2" && !std::filesystem::exists(path)) {
      std::cout << "note: " << path << " is not here, so Llama 2's vectors are not checked\n";
      GTEST_SKIP();
    }
    tokenizer_.emplace(Tokenizer::load(path));
  }
  std::optional<Tokenizer> tokenizer_;
};

TEST_P(Vectors, EqualHuggingFaceTokenizers) {
  std::istringstream lines(read_vectors(std::string("hf_") + GetParam() + ".jsonl.gz"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json vector = json::parse(line);
    const auto text = vector["text"].get<std::string>();
    const auto ids = vector["ids"].get<std::vector<int32_t>>();
    const auto decoded = vector["decoded"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer_->encode(text, true), vector["ids_special"].get<std::vector<int32_t>>()) << text;
    std::vector<std::string> tokens;
    for (const int32_t id : ids) tokens.push_back(tokenizer_->token_of(id));
    EXPECT_EQ(tokens, vector["tokens"].get<std::vector<std::string>>()) << text;
    EXPECT_EQ(tokenizer_->decode(ids, false), decoded);
    EXPECT_EQ(joined(*tokenizer_, ids, false), decoded);
  }
  EXPECT_EQ(count, 106);
}

TEST_P(Vectors, EqualThoseOfLlamaCpp) {
  const json all = json::parse(read_vectors("llama_cpp_vocab_tests.json.gz"));
  if (!all.contains(GetParam())) GTEST_SKIP() << "llama.cpp publishes none for this tokenizer";
  for (const json& vector : all[GetParam()]) {
    const auto text = vector["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, false), vector["ids"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_P(Vectors, EqualThoseOfSwiftTransformers) {
  const std::map<std::string, std::string> names = {{"gpt2", "distilgpt2"},
                                                    {"llama2", "coreml-projects/Llama-2-7b-chat-coreml"}};
  const auto name = names.find(GetParam());
  if (name == names.end()) GTEST_SKIP() << "swift-transformers publishes none for this tokenizer";
  const json vectors = json::parse(read_vectors("swift_transformers_tokenizer_tests.json.gz"))[name->second];
  EXPECT_EQ(vectors.size(), 18u);
  for (const json& vector : vectors) {
    const auto text = vector["input"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, true), vector["encoded"]["input_ids"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_P(Vectors, EqualThoseOfTransformersJs) {
  const std::multimap<std::string, std::string> names = {{"gpt2", "Xenova/gpt2"},
                                                         {"gpt2", "openai-community/gpt2"},
                                                         {"llama2", "Xenova/llama-tokenizer"},
                                                         {"qwen2", "Xenova/Qwen1.5-0.5B-Chat"}};
  const auto [first, last] = names.equal_range(GetParam());
  if (first == last) GTEST_SKIP() << "transformers.js publishes none for this tokenizer";
  const json all = json::parse(read_vectors("transformers_js_tests.json.gz"));
  for (auto name = first; name != last; ++name) {
    EXPECT_GE(all[name->second].size(), 25u);
    for (const json& vector : all[name->second]) {
      const auto text = vector["text"].get<std::string>();
      EXPECT_EQ(tokenizer_->encode(text, true), vector["ids"].get<std::vector<int32_t>>())
          << name->second << ": " << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Vectors,
                         testing::Values("gpt2", "smollm2", "qwen2", "olmo2", "llama2", "mistral", "tok512",
                                         "gemma512"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace focus

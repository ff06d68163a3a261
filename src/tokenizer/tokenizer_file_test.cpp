#include "tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include "tokenizer/test_files.h"

namespace focus {
namespace {

using nlohmann::json;

json small_document() {
  return json::parse(R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2, "ab": 3, "<x>": 4}, "merges": ["a b"]}})");
}

json added(int id, const char* content, const json& options = json::object()) {
  json token = {{"id", id}, {"content", content}};
  token.update(options);
  return token;
}

using Ids = std::vector<int32_t>;

TEST(TokenizerFile, ReadsBothFormsOfMerges) {
  const TokenizerFile file =
      parse_tokenizer_file(R"({"model": {"vocab": {"a": 3}, "merges": ["a b", ["c d", "e"]]}})", "t");
  EXPECT_EQ(file.vocab, (std::vector<std::pair<std::string, int64_t>>{{"a", 3}}));
  EXPECT_EQ(file.merges, (std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"c d", "e"}}));
}

TEST(TokenizerFile, NamesWhatIsMalformed) {
  const auto error = [](const char* text) { return error_of([&] { parse_tokenizer_file(text, "t.json"); }); };
  EXPECT_NE(error("{\"a\": ").find("t.json: not valid JSON"), std::string::npos);
  EXPECT_NE(error("").find("t.json: the file is empty"), std::string::npos);
  EXPECT_EQ(error(R"({"a": 1, "a": 2})"), "t.json: key 'a' appears twice in one object");
  EXPECT_EQ(error(R"({"model": {"merges": ["a b c"]}})"),
            "t.json: model.merges[0]: expected \"left right\" or [\"left\", \"right\"], found a b c");
  EXPECT_EQ(error(R"({"model": {"merges": ["a b", ["a"]]}})"),
            "t.json: model.merges[1]: expected \"left right\" or [\"left\", \"right\"], found 1 strings");
  EXPECT_NE(error(R"({"model": {"merges": [3]}})").find("model.merges[0]"), std::string::npos);
  EXPECT_EQ(error(R"({"model": {"vocab": {"a": "b"}}})"),
            "t.json: model.vocab: the id of token 'a' is a string, expected an integer");
  EXPECT_NE(error(R"({"model": {"vocab": {"a": [1]}}})").find("'a'"), std::string::npos);
  EXPECT_NE(error(std::string(100, '[').c_str()).find("nested more than 64 deep"), std::string::npos);
}

TEST(TokenizerFile, NamesMissingAndDamagedFiles) {
  EXPECT_NE(error_of([] { Tokenizer::load("/nonexistent/tokenizer.json"); }).find("/nonexistent/tokenizer.json"),
            std::string::npos);
  const std::filesystem::path folder = write_test_file("other.txt", "").parent_path();
  EXPECT_NE(error_of([&] { Tokenizer::load(folder); }).find("no tokenizer.json"), std::string::npos);

  std::string packed = [] {
    std::ifstream in(project_root() / "data/tokenizers/gemma-style-512/tokenizer.json.gz", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  EXPECT_NO_THROW(Tokenizer::load(write_test_file("whole.json.gz", packed)));
  for (const size_t length : {size_t{5}, size_t{100}, packed.size() / 2, packed.size() - 9, packed.size() - 1}) {
    const auto path = write_test_file("cut.json.gz", packed.substr(0, length));
    EXPECT_NE(error_of([&] { Tokenizer::load(path); }).find("cut.json.gz"), std::string::npos) << length;
  }
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);
  const auto path = write_test_file("checksum.json.gz", packed);
  EXPECT_NE(error_of([&] { Tokenizer::load(path); }).find("checksum.json.gz"), std::string::npos);
}

TEST(TokenizerFile, NamesContradictions) {
  const auto error = [](const json& document) { return error_of([&] { load_json(document); }); };
  const auto expect = [&](const json& document, const std::string& part) {
    EXPECT_NE(error(document).find(part), std::string::npos) << error(document);
  };
  json d = small_document();
  EXPECT_NO_THROW(load_json(d));
  d.erase("model");
  expect(d, "field 'model' is missing");
  d = small_document();
  d["model"]["vocab"] = json::object();
  expect(d, "model.vocab is missing or empty");
  d = small_document();
  d["model"]["type"] = "WordPiece";
  expect(d, "model: a model of type 'WordPiece'");
  d = small_document();
  d["model"] = {{"type", "Unigram"}, {"vocab", json::array({json::array({"a", -1.0})})}};
  expect(d, "model: a model of type 'Unigram'");
  d = small_document();
  d["added_tokens"] = {added(1, "<y>")};
  expect(d, "added_tokens[0]: the id 1 of token '<y>' belongs to 'b'");
  d["added_tokens"] = {added(7, "a")};
  expect(d, "added_tokens[0]: token 'a' has the id 7, but 0");
  d["added_tokens"] = {added(7, "<y>"), added(8, "<y>")};
  expect(d, "added_tokens[1]: token '<y>' is given twice");
  d["added_tokens"] = {added(7, "<y>"), added(7, "<z>")};
  expect(d, "added_tokens[1]: id 7 is given twice");
  d["added_tokens"] = {added(2'000'000'000, "<y>")};
  expect(d, "added_tokens[0]: the id 2000000000 is out of range");
  d = small_document();
  d["post_processor"] = {{"type", "TemplateProcessing"},
                         {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                         {"special_tokens", {{"<s>", {{"ids", {99}}}}}}};
  expect(d, "post_processor: id 99 is not in the vocabulary");
  d["post_processor"]["single"].erase(1);
  expect(d, "post_processor: a template for one text must have the sequence A once");
  d["post_processor"] = {{"type", "Unheard"}};
  expect(d, "post_processor: a post-processor of type 'Unheard'");
}

TEST(AddedTokens, AreCutOutBeforeAllElse) {
  json d = small_document();
  d["normalizer"] = {{"type", "Lowercase"}};
  d["added_tokens"] = {added(4, "<x>", {{"special", true}, {"normalized", false}}), added(5, "<x><x>"),
                       added(6, "<W>", {{"normalized", true}})};
  const Tokenizer t = load_json(d);
  EXPECT_EQ(t.encode("A<x>B", false), (Ids{0, 4, 1}));
  EXPECT_EQ(t.encode("a<X>b", false), (Ids{3})) << "not normalized: matches only as it is written";
  EXPECT_EQ(t.encode("a<w>b<W>", false), (Ids{0, 6, 1, 6})) << "normalized: matches after lower-casing";
  EXPECT_EQ(t.vocab_size(), 7);
  EXPECT_EQ(t.decode(Ids{0, 4, 6}), "a<w>") << "as `tokenizers` decodes it";
}

TEST(AddedTokens, LongestFirstStripAndSingleWord) {
  json d = small_document();
  const json plain = {{"normalized", false}};
  d["added_tokens"] = {added(4, "<x>", plain), added(5, "<x><x>", plain),
                       added(6, "b", {{"normalized", false}, {"single_word", true}})};
  d["added_tokens"][2]["id"] = 1;
  const Tokenizer t = load_json(d);
  EXPECT_EQ(t.encode("<x><x><x>", false), (Ids{5, 4}));
  EXPECT_EQ(t.encode("ab b", false), (Ids{3, 2, 1})) << "within a word it is ordinary text";

  d["added_tokens"] = {added(4, "<x>", {{"normalized", false}, {"lstrip", true}, {"rstrip", true}})};
  EXPECT_EQ(load_json(d).encode("a  <x> \n b <x>", false), (Ids{0, 4, 1, 4}));
  d["added_tokens"] = {added(4, "<x>", {{"normalized", false}, {"lstrip", true}})};
  EXPECT_EQ(load_json(d).encode(" <x> b", false), (Ids{4, 2, 1}));
}

TEST(PostProcessor, PutsSpecialTokensAround) {
  json d = small_document();
  d["post_processor"] = {{"type", "Sequence"},
                         {"processors",
                          {{{"type", "ByteLevel"}},
                           {{"type", "RobertaProcessing"}, {"sep", {"b", 1}}, {"cls", {"a", 0}}},
                           {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "<x>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"<x>", {{"ids", {4, 4}}}}}}}}}};
  const Tokenizer t = load_json(d);
  EXPECT_EQ(t.encode("ab", true), (Ids{4, 4, 0, 3, 1}));
  EXPECT_EQ(t.encode("ab", false), (Ids{3}));
}

TEST(Tokenizer, WithoutDecoderTokensAreSpaced) {
  json d = small_document();
  d["decoder"] = nullptr;
  EXPECT_EQ(load_json(d).decode(Ids{0, 3, 1}), "a ab b");
}

}  // namespace
}  // namespace focus

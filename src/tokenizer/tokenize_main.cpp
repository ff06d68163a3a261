#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

// Runs a tokenizer for tests in other languages: tokenize TOKENIZER. Reads JSON lines from standard input,
// {"text": ...} or {"hex": bytes} or {"file": path}, with "special": true to add special tokens, or {"ids": [...]};
// writes for each {"ids", "decoded", "pieces", "seconds"}: the ids, their text with special tokens, the pieces that
// streaming gave, and the time that encoding took.

namespace {

std::string bytes_of(const nlohmann::json& request) {
  if (request.contains("text")) return request["text"].get<std::string>();
  if (request.contains("file")) {
    std::ifstream in(request["file"].get<std::string>(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  const std::string hex = request.at("hex").get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

nlohmann::json answer(const focus::Tokenizer& tokenizer, const nlohmann::json& request) {
  std::vector<int32_t> ids;
  nlohmann::json reply;
  if (request.contains("ids")) {
    ids = request["ids"].get<std::vector<int32_t>>();
  } else {
    const std::string bytes = bytes_of(request);
    const auto start = std::chrono::steady_clock::now();
    ids = tokenizer.encode(bytes, request.value("special", false));
    reply["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  focus::StreamDecoder stream(tokenizer, false);
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.push_back(stream.push(id));
  pieces.push_back(stream.finish());
  reply["ids"] = ids;
  reply["decoded"] = tokenizer.decode(ids, false);
  reply["pieces"] = pieces;
  return reply;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenize TOKENIZER < requests.jsonl\n";
    return 2;
  }
  try {
    const focus::Tokenizer tokenizer = focus::Tokenizer::load(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(tokenizer, nlohmann::json::parse(line)).dump() << '\n';
    }
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
  return 0;
}

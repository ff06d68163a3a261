#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "tokenizer/json_node.h"
#include "tokenizer/tokenizer.h"

namespace focus {

/// The project's root, where data/ lies.
inline std::filesystem::path project_root() {
  return FOCUS_SOURCE_DIR;
}

/// Writes `text` under this test's name and gives the path.
inline std::filesystem::path write_test_file(const std::string& name, const std::string& text) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "focus_tokenizer" /
                                       (std::string(test->test_suite_name()) + "." + test->name());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << text;
  return folder / name;
}

inline Tokenizer load_json(const nlohmann::json& document) {
  return Tokenizer::load(write_test_file("tokenizer.json", document.dump()));
}

/// A component of its own, as if it were the file t.json.
inline JsonNode test_node(const nlohmann::json& component) {
  return JsonNode::root(component, "t.json");
}

/// The message of the Error that `run` throws; a failure if it throws none.
template <typename Run>
std::string error_of(Run&& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace focus

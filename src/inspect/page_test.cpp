#include "inspect/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/unicode.h"

namespace focus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json report_with_lists(int64_t lists, const std::string& token) {
  nlohmann::json columns;
  for (const char* name : {"list", "size", "class", "purity", "top", "classes"})
    columns[name] = nlohmann::json::array();
  for (int64_t g = 0; g < lists; ++g) {
    columns["list"].push_back(std::to_string(g + 1));
    columns["size"].push_back(g);
    columns["class"].push_back(0);
    columns["purity"].push_back(0.5);
    columns["classes"].push_back({1, 2});
    columns["top"].push_back(nlohmann::json::array());
    for (int t = 0; t < 8; ++t) columns["top"].back().push_back({token, t});
  }
  nlohmann::json layer = {{"layer", 0}, {"sets", nlohmann::json::array({{{"set", 0}, {"lists", columns}}})}};
  return {{"runs", nlohmann::json::array({{{"layers", nlohmann::json::array({layer})}}})}};
}

// The JSON inside the page.
std::string data_of(const std::string& page) {
  const std::string open = "id=\"report-data\">";
  const size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(Page, HoldsHostileTokensSafely) {
  const std::string hostile = "</script><script>alert(1)</script><!--\"'&\\ \x01\x1f\x7f\u2028\u202e";
  const std::string page = html_page(report_with_lists(3, hostile), {});
  const std::string data = data_of(page);
  EXPECT_THAT(data, Not(HasSubstr("<")));
  const nlohmann::json back = nlohmann::json::parse(data);
  EXPECT_EQ(back["runs"][0]["layers"][0]["sets"][0]["lists"]["top"][2][0][0].get<std::string>(), hostile);
  EXPECT_TRUE(
      nlohmann::json::parse(data_of(html_page(report_with_lists(1, "focus-data /*focus-js*/"), {}))).is_object());
}

TEST(Page, ReplacesInvalidUtf8) {
  EXPECT_TRUE(is_valid_utf8(html_page(report_with_lists(2, "\xff\xc3"), {})));
}

TEST(Page, LoadsNothing) {
  const std::string page = html_page(report_with_lists(1, "x"), {});
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("focus-css*/")));
  EXPECT_THAT(page, Not(HasSubstr(FOCUS_SOURCE_DIR)));
}

TEST(Page, ShortensTablesThatAreTooLong) {
  const nlohmann::json few = nlohmann::json::parse(data_of(html_page(report_with_lists(64, " the"), {})));
  const nlohmann::json& set = few["runs"][0]["layers"][0]["sets"][0];
  EXPECT_EQ(set["lists_left_out"], 0);
  EXPECT_EQ(set["lists"]["size"].size(), 64u);
  EXPECT_EQ(set["lists"]["top"][0].size(), 8u);
  const std::string page = html_page(report_with_lists(50'000, " the"), {});
  EXPECT_LT(page.size(), static_cast<size_t>(kPageBudget));
  const nlohmann::json many = nlohmann::json::parse(data_of(page));
  const nlohmann::json& cut = many["runs"][0]["layers"][0]["sets"][0];
  const size_t left = cut["lists"]["size"].size();
  EXPECT_EQ(cut["lists_left_out"].get<size_t>() + left, 50'000u);
  EXPECT_EQ(cut["lists"]["size"].back(), 49'999);  // the largest stay
  EXPECT_EQ(cut["lists"]["top"].size(), left);
  EXPECT_EQ(cut["lists"]["top"][0].size(), 3u);
}

}  // namespace
}  // namespace focus

#include "page/page.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/json_text.h"

namespace focus {

namespace {

void replace_once(std::string& text, std::string_view mark, std::string_view with) {
  const size_t at = text.find(mark);
  require(at != std::string::npos, "the page's template has no mark {}", mark);
  text.replace(at, mark.size(), with);
}

}  // namespace

std::string json_in_html(const nlohmann::json& value) {
  const std::string plain = json_text(value);
  std::string safe;
  safe.reserve(plain.size() + plain.size() / 64);
  for (const char c : plain) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string make_page(std::string_view html, const std::vector<std::string_view>& styles,
                      const std::vector<std::string_view>& scripts, const nlohmann::json& data) {
  std::string page(html);
  replace_once(page, "/*focus-css*/", fmt::format("{}", fmt::join(styles, "")));
  replace_once(page, "/*focus-js*/", fmt::format("{}", fmt::join(scripts, "")));
  replace_once(page, "focus-data", json_in_html(data));  // last: the data may hold any text
  return page;
}

}  // namespace focus

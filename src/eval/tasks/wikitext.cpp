#include "base/error.h"
#include "base/files.h"
#include "base/python_text.h"
#include "eval/tasks/families.h"
#include "eval/tasks/reading.h"

namespace focus {

namespace {

/// A line with a title of the first level, "= Title =".
bool begins_article(std::string_view line) {
  const std::string merged = replace_all(replace_all(line, "= = =", "==="), "= =", "==");
  const std::string_view title = strip(merged);
  return title.starts_with("= ") && title.ends_with(" =");
}

/// White space inside a pair of brackets or quotes, next to them, goes.
std::string tighten(std::string_view text, char open, char close) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == open ? text.find(close, i + 1) : std::string_view::npos;
    out += text[i];
    if (end == std::string_view::npos) continue;
    out += strip(text.substr(i + 1, end - i - 1));
    out += close;
    i = end;
  }
  return out;
}

/// The quirk of the original rule for feet and inches, /' 5/: its digit is replaced by the text [0-9].
std::string replace_feet(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool match = text.substr(i, 3) == "/' " && i + 4 < text.size() && text[i + 3] >= '0' && text[i + 3] <= '9' &&
                       text[i + 4] == '/';
    out += match ? std::string_view("/'[0-9]/") : text.substr(i, 1);
    if (match) i += 4;
  }
  return out;
}

/// Tokenised text of WikiText as it would be printed: the rules of its well-known detokeniser, in their order.
std::string detokenized(std::string_view page) {
  std::string text = replace_feet(replace_all(page, "s '", "s'"));
  const auto replace = [&](const char* from, const char* to) { text = replace_all(text, from, to); };
  replace(" @-@ ", "-");
  replace(" @,@ ", ",");
  replace(" @.@ ", ".");
  replace(" : ", ": ");
  replace(" ; ", "; ");
  replace(" . ", ". ");
  replace(" ! ", "! ");
  replace(" ? ", "? ");
  replace(" , ", ", ");
  text = tighten(text, '(', ')');
  text = tighten(text, '[', ']');
  text = tighten(text, '{', '}');
  text = tighten(text, '"', '"');
  text = tighten(text, '\'', '\'');
  replace("= = = =", "====");
  replace("= = =", "===");
  replace("= =", "==");
  replace(" \u00b0 ", "\u00b0");
  replace(" \n", "\n");
  replace("\n ", "\n");
  replace(" N ", " 1 ");
  replace(" 's", "'s");
  return text;
}

}  // namespace

Task read_wikitext2(const std::filesystem::path& folder) {
  const auto file = benchmark_file(folder / "wikitext2", {"test.txt"});
  const std::string text = read_text_or_gzip(file);
  Task task;
  task.kind = TaskKind::kRolling;
  const auto add = [&](std::string_view page) {
    if (strip(page).empty()) return;
    TaskItem item;
    item.choices = {detokenized(page)};
    item.words = count_split_parts(page);
    item.bytes = std::ssize(page);
    task.items.push_back(std::move(item));
  };
  // A page keeps the line ends between its lines, not the one before the next title.
  size_t page = 0, line = 0;
  const std::string_view all = text;
  while (true) {
    const size_t end = all.find('\n', line);
    if (line > 0 && begins_article(all.substr(line, end - line))) {
      add(all.substr(page, line - 1 - page));
      page = line;
    }
    if (end == std::string_view::npos) break;
    line = end + 1;
  }
  add(all.substr(page));
  return task;
}

}  // namespace focus

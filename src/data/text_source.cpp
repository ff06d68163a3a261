#include "data/text_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/log.h"

namespace focus {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Kind { kText, kJsonLines, kOther };

Kind kind_of(const fs::path& file) {
  fs::path name = file.filename();
  if (name.extension() == ".gz") name = name.stem();
  if (name.extension() == ".txt") return Kind::kText;
  if (name.extension() == ".jsonl") return Kind::kJsonLines;
  return Kind::kOther;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kWhiteSpace) == std::string_view::npos;
}

std::string with_plain_line_ends(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

/// Calls visit(line, number from 1) for every line without its end.
template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  int64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string text_of_json_line(const fs::path& file, int64_t number, const std::string& line) {
  const nlohmann::json object = parse_json(line, fmt::format("{}: line {}", file.string(), number));
  const auto text = object.is_object() ? object.find("text") : object.end();
  if (!object.is_object() || text == object.end() || !text->is_string()) {
    fail("{}: line {}: expected an object with a string \"text\"", file.string(), number);
  }
  return text->get<std::string>();
}

void add_document(TextCorpus& corpus, std::string document) {
  if (is_blank(document)) {
    ++corpus.blank_skipped;
    return;
  }
  corpus.bytes += static_cast<int64_t>(document.size());
  corpus.documents.push_back(std::move(document));
}

/// Length of the valid character at the front of `text` (0 if none) and, in `part`, that of the longest piece that
/// could begin one (at least 1). Bounds of the second byte by Unicode's table 3-7: no overlong forms, surrogates or >
/// U+10FFFF.
size_t character_length(std::string_view text, size_t& part) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  part = 1;
  if (lead < 0x80) return 1;
  size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  if (length == 0) return 0;
  unsigned low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (; part < length; ++part) {
    if (byte(part) < low || byte(part) > high) return 0;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

}  // namespace

std::string repair_utf8(std::string_view text, int64_t& replaced) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t part = 0;
    const size_t length = character_length(text, part);
    if (length > 0) {
      out.append(text.substr(0, length));
    } else {
      out += kReplacement;
      ++replaced;
    }
    text.remove_prefix(length > 0 ? length : part);
  }
  return out;
}

std::string unwrap_lines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool paragraph_break = false;
  bool first = true;
  for_each_line(text, [&](std::string_view line, int64_t) {
    const size_t begin = line.find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) {
      paragraph_break = true;
      return;
    }
    const size_t end = line.find_last_not_of(kWhiteSpace) + 1;
    if (!first) out += paragraph_break ? "\n\n" : " ";
    out += line.substr(begin, end - begin);
    paragraph_break = first = false;
  });
  if (!first && !text.empty() && text.back() == '\n') out += '\n';
  return out;
}

void read_text_file(const fs::path& file, const TextOptions& options, TextCorpus& corpus) {
  const std::string raw = read_text_or_gzip(file);
  if (raw.empty()) fail("{}: the file is empty, expected text", file.string());
  const size_t before = corpus.documents.size();
  std::string text = repair_utf8(raw, corpus.invalid_utf8);
  if (text.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0) text.erase(0, kByteOrderMark.size());
  if (kind_of(file) == Kind::kText) {
    text = with_plain_line_ends(text);
    add_document(corpus, options.keep_line_wraps ? std::move(text) : unwrap_lines(text));
  } else {
    for_each_line(text, [&](std::string_view line, int64_t number) {
      if (is_blank(line)) {
        ++corpus.blank_skipped;
      } else {
        add_document(corpus, text_of_json_line(file, number, std::string(line)));
      }
    });
  }
  if (corpus.documents.size() == before) fail("{}: no text in it but white space", file.string());
  corpus.files.push_back(file);
}

std::vector<fs::path> list_text_files(const fs::path& path) {
  if (!fs::exists(path)) fail("cannot read {}: No such file or directory", path.string());
  if (!fs::is_directory(path)) {
    if (kind_of(path) == Kind::kOther) {
      fail("{}: expected a name that ends in .txt, .jsonl, .txt.gz or .jsonl.gz", path.string());
    }
    return {path};
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with('.')) {
      // Hidden: version control, caches, unfinished downloads.
      entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file() && kind_of(entry->path()) != Kind::kOther) files.push_back(entry->path());
  }
  if (error) fail("cannot read {}: {}", path.string(), error.message());
  if (files.empty()) fail("{}: no .txt, .jsonl, .txt.gz or .jsonl.gz file in this folder", path.string());
  std::sort(files.begin(), files.end());
  return files;
}

void warn_about_texts(const TextCorpus& corpus, const fs::path& source) {
  if (corpus.invalid_utf8 > 0) {
    log_warning("{}: {} invalid UTF-8 sequence(s) replaced by U+FFFD", source.string(), corpus.invalid_utf8);
  }
  if (corpus.blank_skipped > 0) {
    log_warning("{}: {} blank line(s) or text(s) skipped", source.string(), corpus.blank_skipped);
  }
}

TextCorpus read_texts(const fs::path& file_or_folder, const TextOptions& options) {
  TextCorpus corpus;
  for (const fs::path& file : list_text_files(file_or_folder)) read_text_file(file, options, corpus);
  warn_about_texts(corpus, file_or_folder);
  return corpus;
}

}  // namespace focus

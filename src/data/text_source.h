#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

struct TextOptions {
  /// Keep single line breaks of .txt files. Otherwise see unwrap_lines.
  bool keep_line_wraps = false;
};

/// Texts read from a file or folder, and what happened to them on the way.
struct TextCorpus {
  std::vector<std::string> documents;        ///< Valid UTF-8, none of them blank.
  std::vector<std::filesystem::path> files;  ///< In the order read.
  int64_t bytes = 0;                         ///< Of the documents.
  int64_t blank_skipped = 0;                 ///< Blank .jsonl lines, and texts that hold only white space.
  int64_t invalid_utf8 = 0;                  ///< Sequences replaced by U+FFFD.
};

/// Reads text: a .txt file (one document; line ends become \n, a byte order mark goes), a .jsonl file (one document a
/// line, its string "text"), either also as .gz, or a folder of such files, sorted by path, searched with its
/// subfolders; other files in a folder are left alone. Warns once about invalid UTF-8 and once about blank texts.
/// Throws Error naming the file: unreadable, of another kind, a .jsonl line that is no object with a string "text"
/// (with its number), a file or a folder without any text.
TextCorpus read_texts(const std::filesystem::path& file_or_folder, const TextOptions& options = {});

/// The files that read_texts reads, in that order. Throws Error as it does.
std::vector<std::filesystem::path> list_text_files(const std::filesystem::path& file_or_folder);

/// Adds the texts of one of them to `corpus`, without warnings. Throws Error as read_texts does.
void read_text_file(const std::filesystem::path& file, const TextOptions& options, TextCorpus& corpus);

/// The warnings of read_texts about what was read; `source` names it.
void warn_about_texts(const TextCorpus& corpus, const std::filesystem::path& source);

/// Joins the lines inside every paragraph of a hard-wrapped text by one space; two or more line breaks (blank lines
/// between, which may hold spaces) become exactly two; white space around lines, indentation included, goes. Books come
/// wrapped at some 70 columns, text on the web does not: a model trained on the latter is surprised by every wrap.
std::string unwrap_lines(std::string_view text);

/// Replaces every invalid sequence by U+FFFD, one for each maximal part of a character as the Unicode standard
/// (section 3.9) recommends and Python does, and adds their number to `replaced`.
std::string repair_utf8(std::string_view text, int64_t& replaced);

}  // namespace focus

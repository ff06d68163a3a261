#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace focus {

/// A compiled regular expression over UTF-8 (PCRE2 with JIT), read with the meaning that Hugging Face tokenizers give
/// it (Oniguruma's Ruby syntax): \s is the White_Space property, ^ and $ match at lines. Immutable; safe to share.
class Regex {
 public:
  /// Compiles `pattern`; `where` begins the message of the Error thrown if it is not valid.
  Regex(std::string_view pattern, const std::string& where);
  /// The expression that matches exactly `text`.
  static std::string escape(std::string_view text);

  struct Match {
    size_t begin;
    size_t end;
  };

  /// One scan over one text; not to be shared between threads.
  class Scan {
   public:
    Scan(const Regex& regex, std::string_view text);
    /// The next match from the left that does not overlap the last one; none at the end.
    std::optional<Match> next();

   private:
    const Regex* regex_;
    std::string_view text_;
    std::unique_ptr<pcre2_real_match_data_8, void (*)(pcre2_real_match_data_8*)> data_;
    size_t position_ = 0;
    std::optional<size_t> last_end_;
  };

  /// Calls visit(begin, end, is_match) for all matches and the stretches between them, in order, covering `text`.
  template <typename Visit>
  void for_each_stretch(std::string_view text, Visit&& visit) const {
    Scan scan(*this, text);
    size_t done = 0;
    while (const std::optional<Match> match = scan.next()) {
      if (done != match->begin) visit(done, match->begin, false);
      visit(match->begin, match->end, true);
      done = match->end;
    }
    if (done != text.size()) visit(done, text.size(), false);
  }

 private:
  std::unique_ptr<pcre2_real_code_8, void (*)(pcre2_real_code_8*)> code_;
  std::string where_;
};

}  // namespace focus

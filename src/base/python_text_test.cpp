#include "base/python_text.h"

#include <gtest/gtest.h>

namespace focus {
namespace {

// Expected values are those of CPython 3.11.

TEST(PythonText, CapitalizeGivesTheFirstCharacterItsTitleCase) {
  EXPECT_EQ(capitalize("\u00e9MILE Zola"), "\u00c9mile zola");
  EXPECT_EQ(capitalize("\u01c6ABC"), "\u01c5abc");  // The letter dz with caron has a title case of its own.
  EXPECT_EQ(capitalize("\u00dfA"), "Ssa");
  EXPECT_EQ(capitalize("a\u0130"), "Ai\u0307");
  EXPECT_EQ(capitalize("1A"), "1a");
  EXPECT_EQ(capitalize(""), "");
}

TEST(PythonText, StripTakesEverySpaceOfPython) {
  EXPECT_EQ(strip(" \t\u00a0a b\u2003\n\x1f"), "a b");
  EXPECT_EQ(strip_right(" a\u3000"), " a");
  EXPECT_EQ(strip(" \n"), "");
}

TEST(PythonText, CountsAndReplaces) {
  EXPECT_EQ(character_count("a\u00e9\U0001f999"), 3);
  EXPECT_EQ(count_split_parts(" one  two\n"), 4);
  EXPECT_EQ(count_split_parts("one"), 1);
  EXPECT_EQ(replace_all("aaa", "aa", "b"), "ba");
}

}  // namespace
}  // namespace focus

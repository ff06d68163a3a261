#include "page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "page/page_assets.h"

namespace focus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kHtml = "<style>/*focus-css*/</style><script>focus-data</script><script>/*focus-js*/</script>";

TEST(SharedPage, PutsThePartsTogether) {
  EXPECT_EQ(make_page(kHtml, {"a{}", "b{}"}, {"f()", ";g()"}, {{"x", 1}}),
            "<style>a{}b{}</style><script>{\"x\":1}</script><script>f();g()</script>");
  EXPECT_THROW(make_page("<script>focus-data</script>", {}, {}, {}), Error);
}

TEST(SharedPage, NoMarkupBeginsInTheData) {
  const std::string hostile = "</script><!--\xE2\x80 focus-data /*focus-js*/";
  const std::string page = make_page(kHtml, {}, {}, hostile);
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003c!--\uFFFD focus-data /*focus-js*/"));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
}

TEST(SharedPage, SharedPartsLoadNothing) {
  for (const std::string_view part : {kPageCss, kChartsJs, kScatterJs, kCommonJs}) {
    EXPECT_GT(part.size(), 100u);
    EXPECT_THAT(std::string(part), Not(HasSubstr("https://")));
    EXPECT_THAT(std::string(part), Not(HasSubstr("import ")));
  }
  EXPECT_EQ(kChartsJs.substr(0, 13), "\"use strict\";");
}

}  // namespace
}  // namespace focus

#include "report/results_page.h"

#include "page/page.h"
#include "page/page_assets.h"
#include "report/results_assets.h"

namespace focus {

std::string results_page(const ReportDocument& document) {
  return make_page(kResultsHtml, {kPageCss, kResultsCss}, {kChartsJs, kScatterJs, kCommonJs, kResultsJs},
                   document_json(document));
}

}  // namespace focus

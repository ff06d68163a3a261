#include "cli/inspect_command.h"

#include <algorithm>

#include "attention/routing/adapter.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/output.h"
#include "cli/session.h"
#include "inspect/inspection.h"
#include "inspect/page.h"
#include "inspect/report.h"

namespace focus {

namespace {

constexpr int64_t kDefaultContext = 2048;
constexpr int64_t kExcerptBudget = 1'000'000;  // bytes of the page for the text view

/// Last component of a path, so that a report does not tell where it was made; of .../run/adapter the last two.
std::string short_name(const std::filesystem::path& path) {
  std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();
  const std::string name = normal.filename().string();
  const std::string folder = normal.parent_path().filename().string();
  return name == "adapter" && !folder.empty() ? folder + "/" + name : name;
}

class InspectCommand : public Command {
 public:
  void declare(OptionTable& table) override {
    common_.declare(table, kModelFlags | kAdapterFlag | kDataFlags | kOutFlag | kSeedFlag);
    table.section("Inspection");
    table.add("html", &html_, "write the report as one self-contained page").value_name("FILE");
    table.add("compare-adapter", &other_, "a second adapter of the same model, shown beside the first")
        .value_name("DIR");
    table.add("context", &context_, "tokens a window")
        .at_least(2)
        .default_text("2048, or the model's context if that is shorter");
    table.add("max-tokens", &options_.max_tokens, "look at the first N tokens only, 0 for all").at_least(0);
    table.add("query-rows", &options_.query_rows, "query rows sampled a layer and window for the attention mass")
        .at_least(1)
        .at_most(4096);
    table.add("top-tokens", &options_.top_tokens, "most frequent tokens named of each list").at_least(1).at_most(1000);
    table.add("pairs", &options_.pairs_a_layer, "long-range pairs named of each layer").at_least(0).at_most(1000);
    table.add("excerpt", &options_.excerpt_tokens, "tokens in the page's text view").at_least(0).at_most(2048);
    attention_.declare(table, {});
  }

  int run(const RunContext& run) override {
    attention_.resolve(run.options);
    if (!common_.adapter) fail_usage("inspect needs --adapter: a folder made by focus train");
    if (attention_.routing != "causal") {
      fail_usage("--routing {}: inspect shows the lists that eval and generate use, which are causal",
                 attention_.routing);
    }
    if (html_) {
      if (std::filesystem::is_directory(*html_))
        fail_usage("--html {}: expected a file, this is a folder", html_->string());
      prepare_output_folder(std::filesystem::absolute(*html_).parent_path(), "--html");
    }
    if (common_.out) prepare_output_folder(*common_.out, "--out");
    const InterruptGuard guard;
    const Session session = open_session(common_, run.device);
    const ModelConfig& config = session.model->config();
    options_.context = context_.value_or(std::min(kDefaultContext, config.max_positions));
    options_.seed = static_cast<uint64_t>(common_.seed);
    if (options_.context > config.max_positions) {
      fail_usage("--context {}: the model's context is {}", options_.context, config.max_positions);
    }
    std::vector<std::filesystem::path> adapters = {*common_.adapter};
    if (other_) adapters.push_back(*other_);
    std::vector<Adapter> opened;
    for (const auto& folder : adapters) {
      opened.push_back(open_adapter(session, folder, common_.force, attention_, run.options));
      if (opened.back().router == nullptr) fail_usage("{}: it has no lists to inspect", folder.string());
    }
    const std::vector<Document> documents = read_documents(session.tokenizer, common_);
    TokenTexts texts(session.tokenizer);
    int64_t sinks = 0;
    for (const Adapter& adapter : opened) sinks = std::max(sinks, adapter.router->config().sinks);
    const InspectedText text = inspected_text(documents, texts, options_, sinks);

    std::vector<Inspection> inspections;
    for (size_t r = 0; r < opened.size(); ++r) {
      Progress progress(fmt::format("inspect {}", short_name(adapters[r])), text.windows(), "windows");
      const auto go_on = [&](int64_t done, int64_t) {
        progress.set(done);
        return !interrupted();
      };
      inspections.push_back(inspect(*session.model, opened[r].router, text, options_, go_on, opened[r].scales));
      if (interrupted()) {
        log_warning("interrupted: no result");
        return 1;
      }
    }
    finish(inspections, adapters, text, texts, run);
    return 0;
  }

 private:
  void finish(const std::vector<Inspection>& inspections, const std::vector<std::filesystem::path>& adapters,
              const InspectedText& text, TokenTexts& texts, const RunContext& run) const {
    nlohmann::json report = {{"model", short_name(common_.model)}, {"data", short_name(common_.data)},
                             {"documents", text.documents},        {"tokens", text.ids.size()},
                             {"windows", text.windows()},          {"context", options_.context},
                             {"query_rows", options_.query_rows},  {"seed", common_.seed},
                             {"classes", token_class_names()},     {"runs", nlohmann::json::array()},
                             {"compared", nlohmann::json::array()}};
    for (size_t r = 0; r < inspections.size(); ++r) {
      report["runs"].push_back(run_report(short_name(adapters[r]), inspections[r], text, texts, options_));
    }
    if (inspections.size() == 2) report["compared"] = compare_runs(inspections[0], inspections[1]);
    if (html_) {
      std::vector<nlohmann::json> excerpts;
      for (const Inspection& inspection : inspections) {
        excerpts.push_back(excerpt_data(inspection, text, texts, options_, kExcerptBudget / std::ssize(inspections)));
      }
      const std::string page = html_page(report, excerpts);
      write_file_atomically(*html_, page);
      log_info("{}: {} bytes", html_->string(), page.size());
    }
    if (common_.out) {
      nlohmann::json record = report;
      record["options"] = run.options.record();
      write_file_atomically(*common_.out / "inspect.json", json_text(record) + "\n");
    }
    if (common_.json) {
      write_json_line(report);
    } else {
      write_output(report_summary(report));
    }
  }

  AttentionOptions attention_;
  InspectionOptions options_;
  std::optional<std::filesystem::path> html_, other_;
  std::optional<int64_t> context_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command() {
  return std::make_unique<InspectCommand>();
}

}  // namespace focus

#include "base/run_options.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

void CommonOptions::declare(OptionTable& table, unsigned flags) {
  table.section("Model and data");
  if (flags & kModelFlags) {
    Option& option = table.add("model", &model, "folder of the model in Hugging Face form").value_name("DIR");
    if (!(flags & kOptionalModel)) option.required();
    table.add("dtype", &dtype, "convert the weights to this type")
        .one_of({"float32", "bfloat16", "float16"})
        .default_text("as stored");
  }
  if (flags & kWeightsFlag) {
    weights = WeightMemory::kAuto;
    table.add_choice(
        "weights", &weights,
        {{"auto", WeightMemory::kAuto}, {"mapped", WeightMemory::kMapped}, {"resident", WeightMemory::kResident}},
        "read the weights from the mapped file, which starts at once and can be larger than memory, or from "
        "a copy in large pages, which is faster token by token; auto: the copy if half of the free memory "
        "holds it");
  }
  if (flags & kRopeFlag) {
    table
        .add("rope-scaling", &rope_scaling,
             "stretch the rotary positions and so the context by a factor, linear or yarn; the text gets worse unless "
             "the model was trained for it")
        .value_name("TYPE:FACTOR")
        .default_text("as config.json says");
  }
  if (flags & kAdapterFlag) {
    table.add("adapter", &adapter, "folder of a trained adapter for this model").value_name("DIR");
    table.add("force", &force, "take an adapter that was made for another base model");
  }
  if (flags & kLoraFlag) {
    table.add("lora", &lora, "folder of low-rank updates (PEFT's LoRA) for this model").value_name("DIR");
  }
  if (flags & kDataFlags) {
    Option& option =
        table.add("data", &data, "text: .txt or .jsonl ({\"text\": ...}), also .gz, or a folder of such files")
            .value_name("FILE|DIR");
    if (!(flags & kOptionalData)) option.required();
    table.add("keep-line-wraps", &keep_line_wraps,
              "keep single line breaks of .txt files; by default lines inside a paragraph are joined by a space, since "
              "books come wrapped at a fixed width");
  }
  if (flags & kOutFlag) table.add("out", &out, "folder for the results").value_name("DIR");
  table.section("Run");
  table.add("device", &device, "cpu, cuda or cuda:N").value_name("NAME");
  table.add("threads", &threads, "CPU threads").at_least(1).at_most(4096).default_text("the CPUs this process may use");
  if (flags & kSeedFlag) table.add("seed", &seed, "seed of everything random").at_least(0);
  table.add("json", &json, "print JSON on standard output and nothing else").unrecorded();
  table.add("quiet", &quiet, "no progress and no log below warnings").unrecorded();
  table.add("verbose", &verbose, "log details").unrecorded();
}

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const std::vector<std::string> kGroupFlags = {"groups", "groups-per-token", "group-dim",    "tau",    "sinkhorn-iters",
                                              "shared", "symmetric",        "global-group", "routing"};
// Those that random lists have a meaning for.
const std::vector<std::string> kRandomFlags = {"groups", "groups-per-token", "shared"};
// Methods that attend no window and no sinks, and so take nothing from an adapter.
const std::vector<std::string> kWithoutNearKeys = {"full", "performer", "linformer"};

void check_group_flags(const OptionTable& table, const std::string& method) {
  if (method == "focus") return;
  for (const std::string& flag : kGroupFlags) {
    if (!table.changed(flag)) continue;
    if (method != "random-groups") fail_usage("--{}: --method {} has no groups", flag, method);
    if (!contains(kRandomFlags, flag)) fail_usage("--{}: --method {} draws its lists at random", flag, method);
  }
  if (!contains(kWithoutNearKeys, method)) return;
  for (const char* flag : {"window", "sinks"}) {
    if (table.changed(flag)) fail_usage("--{}: --method {} attends no window and no sinks", flag, method);
  }
}

}  // namespace

void AttentionOptions::declare(OptionTable& table, const std::vector<std::string>& methods,
                               const std::string& default_method) {
  table.section("Attention and groups");
  takes_method_ = !methods.empty();
  if (takes_method_) {
    table.add("method", &method, "attention method; with --adapter the others take its window, sinks and groups")
        .one_of(methods)
        .default_text(default_method);
  }
  table.add("groups", &groups, "lists of tokens a head (K)").value_name("K").at_least(1).at_most(4095);
  table.add("groups-per-token", &groups_per_token, "lists that a query probes; with --symmetric groups a token joins")
      .value_name("P")
      .at_least(1)
      .at_most(4095);
  table.add("window", &window, "tokens at most this far back are always attended").value_name("W").at_least(0);
  table.add("sinks", &sinks, "first tokens of a document that all attend").at_least(0).at_most(4096);
  table.add("group-dim", &group_dim, "dimensions of the routing index").at_least(1).at_most(1024);
  table.add("tau", &tau, "temperature of the group scores").above(0);
  table.add("sinkhorn-iters", &sinkhorn_iters, "Sinkhorn rounds that balance the groups in training").at_least(1);
  table.add("shared", &shared, "one set of lists a layer instead of one a KV head");
  table.add("symmetric", &symmetric, "the paper's form: a token joins its groups both as query and as key");
  table.add("global-group", &global_group,
            "let the list that every query probes take learned keys, not only the sinks");
  table.add("routing", &routing, "causal, or the paper's batch Sinkhorn, which lets later tokens change earlier ones")
      .one_of({"causal", "paper"});
  if (takes_method_) baselines.declare(table);
}

void AttentionOptions::resolve(const OptionTable& table) {
  if (symmetric && !table.given("groups")) groups = 8;
  if (symmetric && !table.given("groups-per-token")) groups_per_token = 1;
  if (!table.given("groups-per-token")) groups_per_token = std::min(groups_per_token, groups);
  if (groups_per_token > groups) {
    fail_usage("--groups-per-token {}: expected at most the number of groups, {}", groups_per_token, groups);
  }
  if (takes_method_) baselines.check(table, table.given("method") ? method : "");
}

void AttentionOptions::choose_method(const OptionTable& table, bool adapter) {
  if (!table.given("method")) method = adapter ? "focus" : "full";
  if (method == "focus" && !adapter) fail_usage("--method focus needs --adapter: a folder made by focus train");
  if (adapter && method != "full" && contains(kWithoutNearKeys, method)) {
    fail_usage("--adapter: --method {} takes nothing from an adapter", method);
  }
  if (!adapter && table.changed("force")) fail_usage("--force belongs to --adapter");
  check_group_flags(table, method);
}

void AttentionOptions::choose_without_lists(const OptionTable& table, const std::string& adapter) {
  if (table.given("method") && method == "focus") {
    fail_usage("--method focus: {} has no lists, only head scales for full attention", adapter);
  }
  if (!table.given("method")) method = "full";
  check_group_flags(table, method);
}

}  // namespace focus

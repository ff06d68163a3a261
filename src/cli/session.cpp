#include "cli/session.h"

#include <algorithm>
#include <chrono>

#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/device.h"
#include "data/text_source.h"
#include "data/token_shards.h"
#include "models/lora.h"
#include "models/rope_scaling.h"
#include "weights/hf_folder.h"

namespace focus {

namespace {

/// Settings that are built into an adapter's weights; the rest may change at inference.
constexpr const char* kTrainedFlags[] = {"groups", "group-dim", "tau", "shared", "symmetric", "global-group"};

/// An adapter's settings with the given inference flags on top.
RoutingConfig adapted_config(const RoutingConfig& trained, const AttentionOptions& options, const OptionTable& table) {
  const RoutingConfig asked = routing_config(options);
  const auto check = [&](const char* flag, const auto& mine, const auto& theirs) {
    if (table.given(flag) && mine != theirs) {
      fail_usage("--{} {}: the adapter was trained with {}, which cannot change at inference", flag, mine, theirs);
    }
  };
  check(kTrainedFlags[0], asked.groups, trained.groups);
  check(kTrainedFlags[1], asked.group_dim, trained.group_dim);
  check(kTrainedFlags[2], asked.tau, trained.tau);
  check(kTrainedFlags[3], asked.shared, trained.shared);
  check(kTrainedFlags[4], asked.symmetric, trained.symmetric);
  check(kTrainedFlags[5], asked.global_group, trained.global_group);
  RoutingConfig config = trained;
  if (table.given("groups-per-token")) config.groups_per_token = asked.groups_per_token;
  if (table.given("window")) config.window = asked.window;
  if (table.given("sinks")) config.sinks = asked.sinks;
  if (table.given("sinkhorn-iters")) config.sinkhorn_iters = asked.sinkhorn_iters;
  if (table.given("routing")) config.routing = asked.routing;
  return config;
}

}  // namespace

Session open_session(const CommonOptions& common, const at::Device& device, SessionStart from) {
  const auto start = std::chrono::steady_clock::now();
  LoadOptions load;
  load.dtype = parse_dtype(common.dtype);
  load.device = device;
  load.weights = common.weights;
  if (common.weights == WeightMemory::kResident && !device.is_cpu()) {
    fail_usage("--weights resident is for --device cpu, not {}", device.str());
  }
  if (common.rope_scaling) load.rope_scaling = parse_rope_scaling(*common.rope_scaling);
  HfFolder::open(common.model);  // Says what is wrong with the folder before its tokenizer is looked for.
  Tokenizer tokenizer = Tokenizer::load(common.model);
  std::unique_ptr<CausalLM> model = from == SessionStart::kRandomWeights
                                        ? init_model(common.model, static_cast<uint64_t>(common.seed), load)
                                        : load_model(common.model, load);
  if (common.lora) load_lora(*model, *common.lora);
  if (tokenizer.vocab_size() > model->config().vocab_size) {
    log_warning("the tokenizer has {} ids, the model only {}: text that uses the others cannot be read",
                tokenizer.vocab_size(), model->config().vocab_size);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const ModelConfig& config = model->config();
  log_info("{}: {}, {} layers, width {}, {} query and {} KV heads of {}, {} ids, {}; loaded in {:.2f} s",
           common.model.string(), config.model_type, config.num_layers, config.hidden_size, config.num_heads,
           config.num_kv_heads, config.head_dim, config.vocab_size,
           at::toString(model->parameters().front().second.scalar_type()), seconds);
  return {std::move(model), std::move(tokenizer), seconds};
}

RoutingConfig routing_config(const AttentionOptions& options) {
  RoutingConfig config;
  config.groups = options.groups;
  config.groups_per_token = options.groups_per_token;
  config.window = options.window;
  config.sinks = options.sinks;
  config.group_dim = options.group_dim;
  config.tau = options.tau;
  config.sinkhorn_iters = options.sinkhorn_iters;
  config.shared = options.shared;
  config.symmetric = options.symmetric;
  config.global_group = options.global_group;
  config.routing = parse_routing_mode(options.routing);
  return config;
}

Adapter open_adapter(const Session& session, const std::filesystem::path& folder, bool force,
                     const AttentionOptions& options, const OptionTable& table) {
  Adapter adapter = load_adapter(folder, {.base_fingerprint = model_fingerprint(*session.model), .force = force});
  if (!adapter.base_matches) log_warning("{}: made for another base model", folder.string());
  if (adapter.router != nullptr) {
    const RoutingConfig config = adapted_config(adapter.router->config(), options, table);
    adapter.router = std::make_shared<Router>(adapter.router->with_config(config));
  }
  return adapter;
}

std::unique_ptr<AttentionMethod> open_method(const Session& session, const CommonOptions& common,
                                             AttentionOptions& options, const OptionTable& table) {
  options.choose_method(table, common.adapter.has_value());
  Adapter adapter;
  if (common.adapter) adapter = open_adapter(session, *common.adapter, common.force, options, table);
  if (common.adapter && adapter.router == nullptr) options.choose_without_lists(table, common.adapter->string());
  MethodOptions method;
  method.seed = static_cast<uint64_t>(common.seed);
  method.routing = routing_config(options);
  method.baselines = options.baselines;
  if (adapter.router != nullptr) method.routing = adapter.router->config();
  if (options.method == "focus") method.router = adapter.router;
  if (options.method == "full" && common.adapter && adapter.scales == nullptr) {
    fail_usage("--adapter {}: it has lists but no head scales, --method full takes nothing from it",
               common.adapter->string());
  }
  if (options.method == "focus" || options.method == "full") {
    method.scales = adapter.scales;
  } else if (adapter.scales != nullptr) {
    log_warning("--method {}: the adapter's head scales are left out, they are for focus and full", options.method);
  }
  return make_method(options.method, method);
}

std::shared_ptr<const TokenSource> read_tokens(const Tokenizer& tokenizer, const CommonOptions& common) {
  if (!TokenShards::is_shards(common.data)) return std::make_shared<MemoryTokens>(read_documents(tokenizer, common));
  if (common.keep_line_wraps) fail_usage("--keep-line-wraps: {} holds tokens already", common.data.string());
  const auto shards = TokenShards::open(common.data);
  require(shards->format().tokenizer_hash == tokenizer_hash(common.model),
          "{}: made with another tokenizer than {} has", common.data.string(), common.model.string());
  log_info("{}: {} shard(s), {} document(s), {} tokens", common.data.string(), shards->shards(), shards->documents(),
           shards->tokens());
  return shards;
}

std::vector<Document> read_documents(const Tokenizer& tokenizer, const CommonOptions& common) {
  if (TokenShards::is_shards(common.data)) {
    const auto source = read_tokens(tokenizer, common);
    std::vector<Document> documents;
    for (int64_t d = 0; d < source->documents(); ++d) documents.push_back(source->document(d, source->length(d)));
    return documents;
  }
  const TextCorpus corpus = read_texts(common.data, {.keep_line_wraps = common.keep_line_wraps});
  std::vector<Document> documents;
  int64_t tokens = 0;
  for (const std::string& text : corpus.documents) {
    documents.push_back(tokenizer.encode(text, /*add_special_tokens=*/true));
    tokens += std::ssize(documents.back());
  }
  log_info("{}: {} document(s), {} bytes, {} tokens; line wraps {}", common.data.string(), documents.size(),
           corpus.bytes, tokens, common.keep_line_wraps ? "kept" : "joined");
  return documents;
}

double share(const PairCount& pairs) {
  return pairs.causal > 0 ? static_cast<double>(pairs.kept) / static_cast<double>(pairs.causal) : 1.0;
}

}  // namespace focus

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "attention/method.h"
#include "attention/routing/adapter.h"
#include "attention/routing/config.h"
#include "attention/routing/router.h"
#include "base/run_options.h"
#include "cli/command.h"
#include "data/token_windows.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace focus {

/// A model with its tokenizer, as --model, --dtype and --device ask for it.
struct Session {
  std::unique_ptr<CausalLM> model;
  Tokenizer tokenizer;
  double load_seconds = 0;
};

enum class SessionStart { kStoredWeights, kRandomWeights };

/// Loads both, the model with the low-rank updates of --lora if given; or makes a model of random weights by --seed.
/// Throws Error; warns when the tokenizer has more ids than the model.
Session open_session(const CommonOptions& common, const at::Device& device,
                     SessionStart start = SessionStart::kStoredWeights);

/// The routing settings as given by flags.
RoutingConfig routing_config(const AttentionOptions& options);

/// The method that --method, --adapter and the group flags ask for: without --method "focus" when there is an adapter,
/// else "full" (also for an adapter without lists). An adapter's own settings hold for every flag that was not given;
/// of those given only what may change after training is accepted (--groups-per-token, --window, --sinks, --routing),
/// others throw UsageError. Its head scales hold for "focus" and "full"; other methods do without, with a warning.
/// `options.method` is set to the method's name.
std::unique_ptr<AttentionMethod> open_method(const Session& session, const CommonOptions& common,
                                             AttentionOptions& options, const OptionTable& table);

/// An adapter's folder, its router (if it has one) under the given flags, of which the same are accepted. `force` takes
/// an adapter of another base, with a warning. Throws Error and UsageError.
Adapter open_adapter(const Session& session, const std::filesystem::path& folder, bool force,
                     const AttentionOptions& options, const OptionTable& table);

/// What --data names as tokens: texts, each with the special tokens that the tokenizer puts around a text, or a folder
/// of shards, which stay on the disk. Throws Error when the shards were made with another tokenizer.
std::shared_ptr<const TokenSource> read_tokens(const Tokenizer& tokenizer, const CommonOptions& common);

/// The same in memory, one entry a document.
std::vector<Document> read_documents(const Tokenizer& tokenizer, const CommonOptions& common);

/// kept / causal, 1 when nothing was counted.
double share(const PairCount& pairs);

}  // namespace focus

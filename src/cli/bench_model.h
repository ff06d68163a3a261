#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/methods/registry.h"
#include "bench/model_bench.h"
#include "bench/train_bench.h"
#include "cli/command.h"
#include "cli/session.h"

namespace focus {

/// `focus bench prefill|decode|train --model`: a whole model under several methods, transformers among them where it
/// reads.
class ModelBench {
 public:
  /// Names for --methods.
  static std::vector<std::string> methods();

  /// The flags that only it has.
  void declare(OptionTable& table);
  /// Their names, which the other benchmarks refuse.
  static std::vector<std::string> flags();

  bool has_model() const { return model_.has_value(); }

  /// What it shares with the benchmarks of the op.
  struct Shared {
    std::string what;  ///< prefill, decode or train.
    std::vector<std::string> methods;
    std::vector<int64_t> lengths;
    int64_t repeats = 0;
    int64_t groups_per_token = 0, window = 0, sinks = 0;  ///< They hold where their flags were given.
  };
  /// Measures and prints; returns the exit code. Throws UsageError for flags that do not fit.
  int run(const RunContext& run, CommonOptions common, Shared shared);

 private:
  int run_training(const RunContext& run, CommonOptions common, const Shared& shared);
  void check(const OptionTable& table, const CommonOptions& common, Shared& shared) const;
  MethodOptions method_options(const Session& session, const OptionTable& table, const CommonOptions& common,
                               const Shared& shared) const;
  std::vector<int32_t> read_text(const Session& session, const CommonOptions& common, const Shared& shared) const;

  ModelBenchOptions bench_;
  TrainBenchOptions train_;
  std::string autocast_ = "none";
  OwnRunnerOptions runner_;
  std::optional<std::filesystem::path> model_;
  std::optional<std::filesystem::path> data_;
  std::optional<std::string> cache_dtype_;
};

}  // namespace focus

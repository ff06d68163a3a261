#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/routing/adapter.h"
#include "cli/session.h"
#include "cli/training_evaluation.h"
#include "cli/training_flags.h"
#include "train/ste_trainer.h"

namespace focus {

/// `focus train --train centroids --objective lm-ste`, the last stage of routers: the language-model loss through the
/// hard mask, for lists and for the scalars of the query heads.
class LmSteTraining {
 public:
  void declare(OptionTable& table);
  /// Names of the flags declared here; they mean nothing without the stage.
  static std::vector<const char*> flags() { return {"lm-trains", "patience"}; }
  /// Checks and fills in the settings; `repeats` and `calibration_windows` as their flags say. Throws UsageError.
  void resolve(const OptionTable& table, const TrainingFlags& flags, const std::string& method, const EvalFlags& eval,
               double repeats, int64_t calibration_windows, int64_t seed);
  /// Trains from `start` (without a router: under full attention) and writes `out`/adapter: the best measured on
  /// --eval-data, else the last. Returns the summary; nothing when interrupted, with a checkpoint saved.
  std::optional<nlohmann::json> run(const Session& session, const Adapter& start,
                                    const std::shared_ptr<const TokenSource>& text, const CommonOptions& common,
                                    const TrainingFlags& flags, const std::filesystem::path& out,
                                    TrainingEvaluation& evaluation, const std::string& adapter_dtype);
  /// What `summary` says, in a line.
  static std::string describe(const nlohmann::json& summary);

 private:
  nlohmann::json identity(const Session& session, const Adapter& start, const TrainingEvaluation& evaluation) const;
  nlohmann::json finish(const Session& session, const Adapter& start, const TokenSource& text,
                        const CommonOptions& common, const std::filesystem::path& out, const SteTrainer& trainer,
                        const TrainingRunResult& result, at::ScalarType dtype) const;

  SteTrainingOptions training_;
  std::vector<std::string> trains_ = {"codebook", "scales"};
  int64_t patience_ = 3;
};

}  // namespace focus

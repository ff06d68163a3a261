#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/method.h"
#include "cli/session.h"
#include "cli/training_evaluation.h"
#include "cli/training_flags.h"
#include "models/lora.h"
#include "train/attention_schedule.h"
#include "train/lm_trainer.h"

namespace focus {

/// `focus train --train all|lora|scratch`, and the second phase of two-phase: weights by the language-model loss.
class WeightTraining {
 public:
  void declare(OptionTable& table);
  /// Names of the flags declared here; they mean nothing where only routers are trained.
  static std::vector<const char*> flags();
  /// Refuses settings that the way of training has no use for, and fills in its defaults. Throws UsageError.
  void resolve(const OptionTable& table, const TrainingFlags& flags);
  /// Updates that will be made, once resolved.
  int64_t steps() const { return training_.steps; }
  /// The full learning rate, once resolved.
  double learning_rate() const { return training_.learning_rate; }
  /// Trains under `attention`, whose settings are `attention_settings`, and writes `out`/model (lora: `out`/adapter),
  /// with evaluation the best to `out`/best as well. `processes` train together (null: this one alone) and rank 0
  /// writes. Returns the summary; nothing when interrupted, with a checkpoint saved.
  std::optional<nlohmann::json> run(Session& session, AttentionSchedule& attention,
                                    const nlohmann::json& attention_settings,
                                    const std::shared_ptr<const TokenSource>& text, const CommonOptions& common,
                                    const TrainingFlags& flags, const std::filesystem::path& out,
                                    TrainingEvaluation& evaluation, Collective* processes);
  /// Writes what was trained: a model folder (under Focus with an adapter for it) or low-rank updates. `further`: what
  /// the adapter says of its training beside.
  void save(const Session& session, const AttentionMethod& method, const CommonOptions& common,
            const std::filesystem::path& folder, const nlohmann::json& further = nlohmann::json::object()) const;
  static std::string describe(const nlohmann::json& summary);

 private:
  nlohmann::json identity(const CausalLM& model, const std::string& method, int64_t processes) const;

  LmTrainingOptions training_;
  LoraOptions lora_;
  LmTrainer::NamedTensors lora_parameters_;
  std::string what_;
  std::string autocast_ = "none";
  std::string save_dtype_ = "float32";
};

}  // namespace focus

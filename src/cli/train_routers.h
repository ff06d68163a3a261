#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/gate_flags.h"
#include "cli/session.h"
#include "cli/training_flags.h"
#include "train/centroid_trainer.h"
#include "train/gate_trainer.h"

namespace focus {

/// `focus train --train centroids`: the routers, with every weight of the model frozen.
class RouterTraining {
 public:
  void declare(OptionTable& table);
  /// Whether the objective names the stages that are trained here, and the last stage, which is not (train_lm_ste.h).
  bool first_stages() const { return has_objective("output") || gate(); }
  bool last_stage() const { return has_objective("lm-ste"); }
  /// Share of windows with a repeat, where --repeats is not given `usual`.
  double repeats(double usual) const { return repeats_.value_or(usual); }
  int64_t list_windows() const { return training_.list_windows; }
  const std::string& adapter_dtype() const { return adapter_dtype_; }
  /// Names of the flags declared here; they mean nothing where no router is trained.
  static std::vector<const char*> flags();
  /// Whether the objective is lm-gate, once parsed.
  bool gate() const { return has_objective("lm-gate"); }
  /// Groups of lm-gate are measured on this text.
  void watch(const EvalFlags& eval) { eval_ = eval; }
  /// Throws UsageError for stages that do not make an objective together.
  void check_objective() const;
  /// Checks the objective, refuses settings that it has no use for, and fills in its defaults. Throws UsageError.
  void resolve(const OptionTable& table, const TrainingFlags& flags, const AttentionOptions& attention, int64_t seed);
  /// The settings for a model, as resolved.
  CentroidTrainingOptions centroid_options(const ModelConfig& config) const;
  /// The same of lm-gate.
  GateTrainingOptions gate_options() const;
  /// What must be the same for a checkpoint to be continued. (The data is checked by the windows' own state.)
  nlohmann::json identity(const CausalLM& model) const;
  /// All of a run's settings, as its checkpoints and its adapter hold them.
  nlohmann::json settings(const CausalLM& model, const CommonOptions& common, const TrainingFlags& flags);
  /// Of lm-gate: how groups were kept even, which the soft gate needs to know again.
  nlohmann::json gate_settings() const { return balance_.identity(); }
  /// Throws Error unless the adapter was trained on the same data and with the same settings as a run would be now,
  /// naming the first that differs.
  void require_same(const std::filesystem::path& adapter, const CausalLM& model, const CommonOptions& common,
                    const TrainingFlags& flags);
  /// Trains and writes `out`/adapter. Returns the summary; nothing when interrupted, with a checkpoint saved.
  std::optional<nlohmann::json> run(const Session& session, const std::shared_ptr<const TokenSource>& text,
                                    const CommonOptions& common, const TrainingFlags& flags,
                                    const std::filesystem::path& out);
  /// What `summary` says, in a line.
  static std::string describe(const nlohmann::json& summary);

 private:
  bool has_objective(const char* name) const;
  int64_t context_of(const CausalLM& model, const TrainingFlags& flags) const;
  std::vector<int64_t> choose_layers(const ModelConfig& config) const;
  std::unique_ptr<Trainer> make_trainer(const CausalLM& model, std::function<TrainWindows::Window()> next_window) const;
  nlohmann::json finish(const Session& session, const TokenSource& text, const CommonOptions& common,
                        const std::filesystem::path& out, const TrainingRunResult& result,
                        const nlohmann::json& settings) const;

  CentroidTrainingOptions training_;  // What both ways of training know is read from here.
  GateTrainingOptions gate_;
  GateFlags balance_;
  EvalFlags eval_;
  std::vector<std::string> objective_ = {"output", "lists"};
  std::optional<std::string> layers_;
  std::optional<double> repeats_;
  int64_t window_ = 0;
  std::string adapter_dtype_ = "float32";
};

}  // namespace focus

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "attention/method.h"
#include "cli/session.h"
#include "cli/training_flags.h"
#include "data/token_windows.h"
#include "dist/collective.h"
#include "train/training_run.h"

namespace focus {

/// Measuring on other text during training, as --eval-data and its flags ask for.
class TrainingEvaluation {
 public:
  explicit TrainingEvaluation(EvalFlags flags) : flags_(std::move(flags)) {}

  const EvalFlags& flags() const { return flags_; }
  bool given() const { return flags_.data.has_value(); }
  int64_t every() const { return flags_.every; }

  /// Reads the text; windows of `context` tokens. Throws Error.
  void open(const Session& session, const CommonOptions& common, int64_t context);
  /// A number for what is measured, once opened; null: nothing is.
  nlohmann::json identity() const;
  /// Nats a token over the windows. Of several processes each takes its share of them.
  double loss(const CausalLM& model, AttentionMethod& method, Collective* processes) const;
  /// The same in one process, and the loss on as many passages repeated after other text (copy_task.h; at most a
  /// quarter and a half of the context), with the pairs kept in the former.
  EvalFigures loss_and_copy(const CausalLM& model, AttentionMethod& method) const;

 private:
  EvalFlags flags_;
  int64_t context_ = 0;
  std::vector<Document> documents_;
  std::vector<EvalWindow> windows_;
};

}  // namespace focus

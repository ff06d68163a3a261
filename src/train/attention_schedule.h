#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention/method.h"
#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "data/token_source.h"
#include "dist/collective.h"
#include "models/model.h"
#include "train/centroid_trainer.h"

namespace focus {

/// Which attention the updates of a run use.
class AttentionSchedule {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  virtual ~AttentionSchedule() = default;
  /// The method for the update after `step` others; may train it first.
  virtual AttentionMethod& at_step(int64_t step) = 0;
  /// The method as it stands: for evaluation, and for what is saved.
  virtual AttentionMethod& current() = 0;
  /// Tensors to go on from.
  virtual NamedTensors state() const { return {}; }
  virtual void load_state(const NamedTensors& /*state*/) {}
};

/// One method throughout.
class FixedAttention : public AttentionSchedule {
 public:
  explicit FixedAttention(AttentionMethod& method) : method_(method) {}
  AttentionMethod& at_step(int64_t /*step*/) override { return method_; }
  AttentionMethod& current() override { return method_; }

 private:
  AttentionMethod& method_;
};

/// Focus for a model whose weights start from nothing: full attention for the first steps, then routers trained on the
/// weights as they are (stages output and lists, weights frozen), and trained anew from time to time.
class RefittedAttention : public AttentionSchedule {
 public:
  struct Options {
    CentroidTrainingOptions centroids;
    int64_t dense_steps = 0;  ///< Updates under full attention.
    int64_t refit_every = 1;  ///< Updates from one training of the routers to the next.
    int64_t context = 0;      ///< Tokens a window of theirs.
    /// Processes that train together; each trains the routers, on the same windows, and all take those of rank 0, since
    /// machines may round differently. Null: this one alone.
    Collective* processes = nullptr;
  };

  RefittedAttention(const CausalLM& model, std::shared_ptr<const TokenSource> text, Options options);

  AttentionMethod& at_step(int64_t step) override;
  AttentionMethod& current() override;
  NamedTensors state() const override;
  /// Throws Error for tensors that are no state of this.
  void load_state(const NamedTensors& state) override;

 private:
  void fit(int64_t step);

  const CausalLM& model_;
  std::shared_ptr<const TokenSource> text_;
  Options options_;
  FullAttention full_;
  std::unique_ptr<FocusAttention> focus_;  // Null under full attention.
  int64_t fitted_at_ = -1;
};

}  // namespace focus

#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attention/routing/router.h"
#include "bench/peaks.h"
#include "models/model.h"

namespace focus {

/// What `focus bench train` measures: updates of all weights of a model, one window a step.
struct TrainBenchOptions {
  std::vector<std::string> methods;  ///< full, focus.
  std::vector<int64_t> lengths;
  int64_t repeats = 3;
  bool activation_checkpointing = false;
  std::optional<at::ScalarType> autocast;  ///< Type of matrix products; weights are float32.
};

/// Floating-point operations that a training step on `length` tokens needs: six for each weight of a matrix and token
/// (two forward, four backward; the table of embeddings counts once, as the head) and twelve for each kept pair, query
/// head and element of a head. What is computed again does not count (Chowdhery et al. 2022, PaLM, appendix B, with the
/// causal half and the pairs that are left out not counted).
double training_flops(const CausalLM& model, int64_t length, double pairs_kept);

/// Runs the measurements, the methods taking turns, and returns one JSON object a length and method (keys:
/// docs/performance.md). Before anything is timed at a length, output and gradients of the attention op on a layer's
/// real queries, keys and lists are compared with the reference in float64 (bench/gate.h), and the loss of each
/// method's step with a pass of its own without gradients. `text` must have the longest length. The learning rate is
/// tiny: weights stay as good as they are. Throws Error when something is wrong.
std::vector<nlohmann::json> run_train_bench(const TrainBenchOptions& options, const CausalLM& model,
                                            const std::shared_ptr<const Router>& router,
                                            const std::vector<int32_t>& text, const MachinePeaks& peaks,
                                            const std::function<bool()>& keep_going);

}  // namespace focus

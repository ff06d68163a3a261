#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/config_fields.h"
#include "models/model.h"
#include "weights/resident_memory.h"
#include "weights/state_dict.h"

namespace focus {

using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

/// Makes a weight of that name and shape.
using WeightInit = std::function<at::Tensor(const std::string& name, at::IntArrayRef shape)>;

/// Hands a family its weights in the dtype and on the device that were asked for, and lists them.
class WeightLoader {
 public:
  /// With `init` the weights are made by it and `weights` is not read.
  WeightLoader(StateDict& weights, const LoadOptions& options, WeightInit init = {})
      : weights_(&weights), options_(options), init_(std::move(init)) {}

  /// The weight `name`, converted if need be; undefined if it is at fault (finish() throws then).
  at::Tensor take(const std::string& name, at::IntArrayRef shape);
  /// As take() for a weight that is stored as `stored`.
  at::Tensor take_as(const std::string& name, const std::string& stored, at::IntArrayRef shape);
  /// take() if `present`, else an undefined tensor, which linear layers read as "no bias".
  at::Tensor take_if(bool present, const std::string& name, at::IntArrayRef shape);
  /// The output head [V, d]: lm_head.weight or, when tied, the embedding. As in transformers, a tied checkpoint that
  /// stores a head of other values keeps it.
  at::Tensor take_head(const at::Tensor& embedding, bool tied, at::IntArrayRef shape);

  /// All weights taken, in order. Throws Error listing missing, mis-shaped and unused names, or naming two weights
  /// whose dtypes differ.
  NamedParameters finish() const;

 private:
  at::Tensor convert(const at::Tensor& tensor) const;

  StateDict* weights_;
  LoadOptions options_;
  std::shared_ptr<ResidentMemory> memory_ = std::make_shared<ResidentMemory>();
  WeightInit init_;
  NamedParameters taken_;
};

/// What a family is given to build a model from.
struct LoadContext {
  const ConfigFields& config;
  WeightLoader& weights;
  StateDict& stored;
  ModelConfig common;  ///< model_type and token ids are set; the family sets the rest.
};

/// One loader a family, in its own file.
std::unique_ptr<CausalLM> load_gemma2(const LoadContext& context);
std::unique_ptr<CausalLM> load_gpt2(const LoadContext& context);
std::unique_ptr<CausalLM> load_llama(const LoadContext& context);
std::unique_ptr<CausalLM> load_mistral(const LoadContext& context);
std::unique_ptr<CausalLM> load_olmo2(const LoadContext& context);
std::unique_ptr<CausalLM> load_qwen2(const LoadContext& context);
std::unique_ptr<CausalLM> load_qwen3(const LoadContext& context);

}  // namespace focus

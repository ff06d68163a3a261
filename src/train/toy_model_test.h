#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string>
#include <utility>
#include <vector>

#include "attention/method.h"
#include "data/token_windows.h"
#include "models/model.h"

namespace focus::testing {

/// Two attention blocks of two heads over random embeddings.
class ToyModel : public CausalLM {
 public:
  ToyModel() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    config_.vocab_size = 40;
    config_.hidden_size = 16;
    config_.num_layers = 2;
    config_.num_heads = config_.num_kv_heads = 2;
    config_.head_dim = 8;
    config_.max_positions = 512;
    embedding_ = at::randn({40, 16}, generator);
    parameters_ = {{"embedding", embedding_}};
  }
  const ModelConfig& config() const override { return config_; }
  at::Tensor embed(const at::Tensor& ids, const at::Tensor&) const override { return at::embedding(embedding_, ids); }
  at::Tensor block(int64_t layer, const at::Tensor& x, const at::Tensor&, AttentionMethod& method,
                   const ForwardOptions& options) const override {
    AttentionInput input;
    input.layer = layer;
    input.hidden = x;
    input.q = input.k = input.v = x.view({x.size(0), x.size(1), 2, 8}).transpose(1, 2);
    input.scale = 0.5;
    input.document_start = options.document_start;
    return x + method.attend(input).transpose(1, 2).reshape(x.sizes());
  }
  at::Tensor final_norm(const at::Tensor& x) const override { return x; }
  at::Tensor logits(const at::Tensor& hidden) const override { return at::matmul(hidden, embedding_.t()) * 0.2; }
  const std::vector<std::pair<std::string, at::Tensor>>& parameters() const override { return parameters_; }
  std::string attention_module() const override { return "layers.{}"; }

 private:
  ModelConfig config_;
  at::Tensor embedding_;
  std::vector<std::pair<std::string, at::Tensor>> parameters_;
};

inline TrainWindows::Window window_of(int64_t index, int64_t length = 96) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(100 + index));
  const at::Tensor ids = at::randint(0, 40, {length}, generator, at::kInt);
  TrainWindows::Window window;
  window.ids.assign(ids.const_data_ptr<int32_t>(), ids.const_data_ptr<int32_t>() + length);
  window.document_start.assign(static_cast<size_t>(length), 0);
  return window;
}

}  // namespace focus::testing

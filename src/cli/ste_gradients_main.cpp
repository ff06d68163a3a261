// Test tool: gradients that stage lm-ste trains by, so that tests in other languages can compare them.
//   focus_ste_gradients MODEL ADAPTER OUT.safetensors < request.json
// Request: {"ids": [...], "sharpness": 3.0}. The adapter has lists and head scales. Writes layers.<n>.codebook,
// layers.<n>.score_factor and layers.<n>.output_gain, the gradients of the mean cross entropy of the next tokens, and
// prints {"loss": ...}.
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "attention/routing/adapter.h"
#include "base/error.h"
#include "models/model.h"
#include "train/straight_through_attention.h"
#include "weights/safetensors.h"

namespace {

void serve(const std::string& model_folder, const std::string& adapter_folder, const std::string& out,
           const nlohmann::json& request) {
  const std::unique_ptr<focus::CausalLM> model = focus::load_model(model_folder, {.dtype = at::kFloat});
  const focus::Adapter adapter = focus::load_adapter(adapter_folder);
  focus::require(adapter.router && adapter.scales, "{}: lists and head scales were expected", adapter_folder);
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  const auto leaf = [&](int64_t layer, const char* name, const at::Tensor& x) {
    parameters.emplace_back(fmt::format("layers.{}.{}", layer, name), x.detach().clone().set_requires_grad(true));
    return parameters.back().second;
  };
  std::map<int64_t, at::Tensor> codebooks;
  for (const auto& [layer, weights] : adapter.router->layers()) {
    codebooks[layer] = leaf(layer, "codebook", weights.codebook);
  }
  const auto scales = std::make_shared<focus::HeadScales>();
  for (const auto& [layer, scale] : *adapter.scales) {
    (*scales)[layer] = {.score_factor = leaf(layer, "score_factor", scale.score_factor),
                        .output_gain = leaf(layer, "output_gain", scale.output_gain)};
  }
  focus::StraightThroughAttention method(adapter.router, scales, codebooks, request.at("sharpness").get<double>());
  const at::Tensor ids = at::tensor(request.at("ids").get<std::vector<int64_t>>(), at::kLong).unsqueeze(0);
  const at::Tensor logits = model->logits(model->forward(ids, method)).squeeze(0);
  const int64_t predicted = ids.size(1) - 1;
  const at::Tensor loss = at::cross_entropy_loss(logits.narrow(0, 0, predicted), ids[0].narrow(0, 1, predicted));
  loss.backward();
  std::vector<std::pair<std::string, at::Tensor>> gradients;
  for (const auto& [name, tensor] : parameters) gradients.emplace_back(name, tensor.grad());
  focus::write_safetensors(out, gradients);
  std::cout << nlohmann::json{{"loss", loss.item<double>()}}.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: focus_ste_gradients MODEL ADAPTER OUT.safetensors < request.json\n";
    return 2;
  }
  try {
    serve(argv[1], argv[2], argv[3], nlohmann::json::parse(std::cin));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}

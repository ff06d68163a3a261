// Test tool: gradients of the groups' parameters under the soft gate, so that tests in other languages can compare
// them.
//   focus_gate_gradients MODEL ADAPTER OUT.safetensors < request.json
// Request: {"ids": [...], "sharpness": 5.0}. The adapter is of the symmetric form. Writes layers.<n>.projection and
// layers.<n>.centroids, the gradients of the mean cross entropy of the next tokens, and prints {"loss": ...}.
#include <torch/csrc/autograd/autograd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "attention/routing/adapter.h"
#include "base/error.h"
#include "models/model.h"
#include "train/soft_gate_attention.h"
#include "weights/safetensors.h"

namespace {

void serve(const std::string& model_folder, const std::string& adapter_folder, const std::string& out,
           const nlohmann::json& request) {
  const std::unique_ptr<focus::CausalLM> model = focus::load_model(model_folder, {.dtype = at::kFloat});
  const focus::Adapter adapter = focus::load_adapter(adapter_folder);
  focus::require(adapter.router->config().symmetric, "{}: the symmetric form was expected", adapter_folder);
  std::map<int64_t, focus::LayerRouter> routers;
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const auto& [layer, router] : adapter.router->layers()) {
    for (const char* name : {"projection", "centroids"}) {
      at::Tensor& tensor = routers[layer].tensor(name);
      tensor = router.tensor(name).detach().clone().set_requires_grad(true);
      parameters.emplace_back(fmt::format("layers.{}.{}", layer, name), tensor);
    }
  }
  focus::SoftGateAttention method(adapter.router->config(), request.at("sharpness").get<double>(), routers);
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
    std::cerr << "usage: focus_gate_gradients MODEL ADAPTER OUT.safetensors < request.json\n";
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

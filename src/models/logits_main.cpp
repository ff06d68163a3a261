// Test tool: runs a model on given ids and writes its logits, so that tests in other languages can compare them.
//   focus_logits MODEL OUT.safetensors < request.json
// Request: {"ids": [[...]], "dtype": "float32", "chunks": [...], "offset": 0, "greedy": 0, "document_start": [[...]]};
// all but ids optional. "chunks" are token counts fed one after another through a cache; "offset" is added to every
// position; "greedy" is the number of tokens to append to the single row of ids; "adapter" is a folder, under which
// Focus attends in place of full attention (one without lists: its head scales beside full attention). Prints a JSON
// object.
#include <c10/core/InferenceMode.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "attention/methods/registry.h"
#include "attention/routing/adapter.h"
#include "base/error.h"
#include "models/model.h"
#include "weights/dtype.h"
#include "weights/safetensors.h"

namespace {

using focus::require;
using nlohmann::json;

at::Tensor matrix(const json& rows, at::ScalarType dtype) {
  std::vector<at::Tensor> parts;
  for (const json& row : rows) parts.push_back(at::tensor(row.get<std::vector<int64_t>>(), at::kLong).to(dtype));
  return at::stack(parts);
}

/// The passes of CausalLM::forward, with `offset` added to the positions: logits float32 [B, T, V].
at::Tensor run(const focus::CausalLM& model, const at::Tensor& ids, focus::AttentionMethod& method,
               const focus::ForwardOptions& options, int64_t offset) {
  if (offset == 0) return model.logits(model.forward(ids, method, options)).to(at::kFloat);
  const at::Tensor positions = model.positions(ids, options) + offset;
  at::Tensor x = model.embed(ids, positions);
  for (int64_t i = 0; i < model.config().num_layers; ++i) x = model.block(i, x, positions, method, options);
  return model.logits(model.final_norm(x)).to(at::kFloat);
}

double resident_megabytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1024;
  }
  return 0;
}

void serve(const std::string& folder, const std::string& out_file, const json& request) {
  const c10::InferenceMode inference;
  focus::LoadOptions load;
  if (request.contains("dtype")) load.dtype = focus::parse_model_dtype(request["dtype"].get<std::string>());
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<focus::CausalLM> model = focus::load_model(folder, load);
  const std::chrono::duration<double> loading = std::chrono::steady_clock::now() - start;
  json report = {{"load_seconds", loading.count()},
                 {"anonymous_mb_after_loading", resident_megabytes("RssAnon")},
                 {"peak_mb_of_loading", resident_megabytes("VmHWM")},
                 {"fingerprint", focus::model_fingerprint(*model)},
                 {"eos_ids", model->config().eos_ids},
                 {"dtype", focus::dtype_name(model->parameters().front().second.scalar_type())}};

  at::Tensor ids = matrix(request.at("ids"), at::kLong);
  const int64_t offset = request.value("offset", 0);
  focus::MethodOptions chosen;
  if (request.contains("adapter")) {
    const focus::Adapter adapter = focus::load_adapter(request["adapter"].get<std::string>());
    chosen.router = adapter.router;
    chosen.scales = adapter.scales;
  }
  const auto method_owner = focus::make_method(chosen.router ? "focus" : "full", chosen);
  focus::AttentionMethod& method = *method_owner;
  focus::ForwardOptions options;
  std::vector<at::Tensor> parts;
  focus::ModelCache cache;
  std::optional<at::Tensor> document_start;
  if (request.contains("document_start")) document_start = matrix(request["document_start"], at::kInt);
  if (request.contains("chunks")) {
    cache = model->make_cache(method, ids.size(0), request.value("capacity", ids.size(1)));
    options.cache = &cache;
    int64_t done = 0;
    for (const int64_t size : request["chunks"].get<std::vector<int64_t>>()) {
      if (document_start.has_value()) options.document_start = document_start->narrow(1, 0, done + size);
      parts.push_back(run(*model, ids.narrow(1, done, size), method, options, offset));
      done += size;
    }
    require(done == ids.size(1), "the chunks hold {} tokens, the ids {}", done, ids.size(1));
  } else {
    options.document_start = document_start;
    parts.push_back(run(*model, ids, method, options, offset));
  }
  report["pairs_kept"] = method.pairs().kept;
  focus::write_safetensors(out_file, {{"logits", at::cat(parts, 1)}});

  if (const int64_t greedy = request.value("greedy", 0); greedy > 0) {
    focus::ModelCache memory = model->make_cache(method, 1, ids.size(1) + greedy);
    focus::ForwardOptions cached;
    cached.cache = &memory;
    at::Tensor next = ids;
    std::vector<int64_t> generated;
    for (int64_t i = 0; i < greedy; ++i) {
      const at::Tensor hidden = model->forward(next, method, cached);
      next = model->logits(hidden.narrow(1, hidden.size(1) - 1, 1)).argmax(-1);
      generated.push_back(next.item<int64_t>());
    }
    report["greedy_ids"] = generated;
  }
  report["peak_mb"] = resident_megabytes("VmHWM");
  std::cout << report.dump() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: focus_logits MODEL OUT.safetensors < request.json\n";
    return 2;
  }
  try {
    serve(argv[1], argv[2], json::parse(std::cin));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return 1;
  }
}

// Test tool: runs attention methods on given tensors, so that tests in other languages can compare them. Every line of
// standard input is a JSON array of arguments,
//   ["IN.safetensors", "OUT.safetensors", "--method", NAME, flags of the method ...]
// IN holds q [B, Hq, T, D], k and v [B, Hkv, T, D], and document_start int32 [B, T] if there are several documents; OUT
// gets `out`. Answers every line with a JSON object.
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "attention/methods/registry.h"
#include "base/error.h"
#include "base/run_options.h"
#include "weights/safetensors.h"

namespace {

struct Request {
  std::filesystem::path in, out;
  std::vector<int64_t> chunks;
  int64_t layer = 0;
  int64_t layer_window = 0;
  int64_t seed = 0;
  double scale = 1.0;
  double softcap = 0.0;
  focus::AttentionOptions attention;
};

nlohmann::json run(const Request& request) {
  const c10::InferenceMode inference;
  const auto file = focus::SafetensorsFile::open(request.in);
  focus::MethodOptions options;
  options.routing.window = request.attention.window;
  options.routing.sinks = request.attention.sinks;
  options.routing.groups = request.attention.groups;
  options.routing.groups_per_token = request.attention.groups_per_token;
  options.seed = static_cast<uint64_t>(request.seed);
  options.baselines = request.attention.baselines;
  const auto method = focus::make_method(request.attention.method, options);

  const at::Tensor q = file.tensor("q");
  const at::Tensor k = file.tensor("k");
  const at::Tensor v = file.tensor("v");
  const int64_t tokens = q.size(2);
  std::vector<int64_t> chunks = request.chunks;
  std::unique_ptr<focus::LayerCache> cache;
  if (chunks.empty()) {
    chunks.push_back(tokens);
  } else {
    cache = method->make_cache(request.layer, q.size(0), tokens);
  }
  std::vector<at::Tensor> parts;
  int64_t done = 0;
  for (const int64_t size : chunks) {
    focus::AttentionInput input;
    input.layer = request.layer;
    input.hidden = at::zeros({q.size(0), size, 1});
    input.q = q.narrow(2, done, size);
    input.k = k.narrow(2, done, size);
    input.v = v.narrow(2, done, size);
    input.scale = request.scale;
    input.softcap = request.softcap;
    input.layer_window = request.layer_window;
    input.cache = cache.get();
    done += size;
    if (file.contains("document_start")) input.document_start = file.tensor("document_start").narrow(1, 0, done);
    parts.push_back(method->attend(input));
  }
  focus::require(done == tokens, "--chunks hold {} tokens, q {}", done, tokens);
  focus::write_safetensors(request.out, {{"out", at::cat(parts, 2)}});
  return {{"kept", method->pairs().kept}, {"causal", method->pairs().causal}, {"is_causal", method->is_causal()}};
}

nlohmann::json answer(const std::string& line) {
  try {
    Request request;
    focus::OptionTable table("attend", "Runs one attention method on given tensors.");
    table.add_positional("in", &request.in, "q, k, v").required();
    table.add_positional("out", &request.out, "the result").required();
    table.add("chunks", &request.chunks, "tokens of one pass after another, through a cache");
    table.add("layer", &request.layer, "number of the layer");
    table.add("layer-window", &request.layer_window, "the layer's own sliding window");
    table.add("seed", &request.seed, "seed");
    table.add("scale", &request.scale, "factor of q.k");
    table.add("softcap", &request.softcap, "cap of the scores");
    request.attention.declare(table, focus::method_names());
    table.parse(nlohmann::json::parse(line).get<std::vector<std::string>>());
    request.attention.resolve(table);
    return run(request);
  } catch (const std::exception& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(line).dump() << '\n' << std::flush;
  }
  return 0;
}

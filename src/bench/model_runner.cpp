#include "bench/model_runner.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/python_script.h"
#include "bench/timing.h"

namespace focus {

namespace {

using nlohmann::json;

/// Adds up the time inside another method.
class TimedMethod : public AttentionMethod {
 public:
  explicit TimedMethod(AttentionMethod& inner) : inner_(inner) {}
  std::string name() const override { return inner_.name(); }
  bool is_causal() const override { return inner_.is_causal(); }
  at::Tensor attend(const AttentionInput& input) override {
    const double start = now_ms(BenchClock::kWall);
    at::Tensor out = inner_.attend(input);
    spent_ms_ += now_ms(BenchClock::kWall) - start;
    return out;
  }
  std::unique_ptr<LayerCache> make_cache(int64_t layer, int64_t batch, int64_t capacity) const override {
    return inner_.make_cache(layer, batch, capacity);
  }
  PairCount pairs() const override { return inner_.pairs(); }
  void reset_pairs() override {
    inner_.reset_pairs();
    spent_ms_ = 0;
  }
  double spent_ms() const { return spent_ms_; }

 private:
  AttentionMethod& inner_;
  double spent_ms_ = 0;
};

class OwnRunner : public ModelRunner {
 public:
  OwnRunner(const CausalLM& model, AttentionMethod& method, const OwnRunnerOptions& options)
      : model_(model), method_(method), options_(options) {}

  std::string name() const override { return method_.name(); }

  StretchResult prefill(const std::vector<int32_t>& prompt) override {
    const int64_t length = std::ssize(prompt);
    cache_ = model_.make_cache(method_, 1, length + options_.spare, options_.cache_dtype);
    const at::Tensor ids = tensor_of(prompt);
    return timed([&] {
      at::Tensor last;
      for (int64_t begin = 0; begin < length; begin += options_.prefill_chunk) {
        last = step(ids.slice(1, begin, begin + options_.prefill_chunk));
      }
      return last;
    });
  }

  StretchResult decode(const std::vector<int32_t>& ids) override {
    const int64_t past = cache_.front()->length();
    const at::Tensor tokens = tensor_of(ids);
    StretchResult result = timed([&] {
      at::Tensor last;
      for (int64_t t = 0; t < tokens.size(1); ++t) {
        last = step(tokens.narrow(1, t, 1));
        last.argmax().item<int64_t>();
      }
      return last;
    });
    for (const auto& layer : cache_) layer->truncate(past);
    return result;
  }

  at::Tensor recompute(const std::vector<int32_t>& ids) override {
    const c10::InferenceMode inference;
    const at::Tensor hidden = model_.forward(tensor_of(ids), method_);
    return model_.logits(hidden.select(1, hidden.size(1) - 1)).flatten().to(at::kFloat);
  }

  PairCount pairs() const override { return method_.pairs(); }
  int64_t cache_bytes() const override {
    int64_t bytes = 0;
    for (const auto& layer : cache_) bytes += layer->bytes();
    return bytes;
  }

 private:
  static at::Tensor tensor_of(const std::vector<int32_t>& ids) {
    return at::tensor(ids, at::kInt).to(at::kLong).unsqueeze(0);
  }

  template <typename Work>
  StretchResult timed(const Work& work) {
    const c10::InferenceMode inference;
    method_.reset_pairs();
    StretchResult result;
    const double start = now_ms(BenchClock::kWall);
    const at::Tensor logits = work();
    result.ms = now_ms(BenchClock::kWall) - start;
    result.attention_ms = method_.spent_ms();
    result.logits = logits.flatten().to(at::kFloat);
    return result;
  }

  /// Logits [1, V] of the last of these tokens.
  at::Tensor step(const at::Tensor& ids) {
    ForwardOptions forward;
    forward.cache = &cache_;
    const at::Tensor hidden = model_.forward(ids, method_, forward);
    return model_.logits(hidden.select(1, hidden.size(1) - 1));
  }

  const CausalLM& model_;
  TimedMethod method_;
  OwnRunnerOptions options_;
  ModelCache cache_;
};

class TransformersRunner : public ModelRunner {
 public:
  TransformersRunner(const std::filesystem::path& model, const std::string& dtype, int64_t threads,
                     const std::optional<RopeScaling>& scaling)
      : server_(python_command(find_script("transformers_bench.py"))) {
    json request = {{"model", model.string()}, {"dtype", dtype}, {"threads", threads}};
    if (scaling) request["rope_scaling"] = {scaling->type, scaling->factor};
    ask(request);
  }

  std::string name() const override { return "transformers"; }
  StretchResult prefill(const std::vector<int32_t>& prompt) override { return stretch({{"prefill", prompt}}); }
  StretchResult decode(const std::vector<int32_t>& ids) override { return stretch({{"decode", ids}}); }
  at::Tensor recompute(const std::vector<int32_t>& /*ids*/) override { return {}; }

 private:
  json ask(const json& request) {
    std::string text;
    try {
      text = server_.ask(json_text(request));
    } catch (const Error& error) {
      fail("method transformers: {}; FOCUS_PYTHON names a Python that has transformers", error.what());
    }
    const json answer = parse_json(text, "method transformers: its answer");
    require(answer.is_object(), "method transformers: an answer that is no JSON object");
    require(!answer.contains("error"), "method transformers: {}", answer.value("error", ""));
    return answer;
  }

  StretchResult stretch(const json& request) {
    const json answer = ask(request);
    return {answer.at("ms").get<double>(), 0, at::tensor(answer.at("logits").get<std::vector<float>>())};
  }

  LineServer server_;
};

}  // namespace

std::unique_ptr<ModelRunner> make_own_runner(const CausalLM& model, AttentionMethod& method,
                                             const OwnRunnerOptions& options) {
  return std::make_unique<OwnRunner>(model, method, options);
}

std::unique_ptr<ModelRunner> make_transformers_runner(const std::filesystem::path& model, const std::string& dtype,
                                                      int64_t threads, const std::optional<RopeScaling>& scaling) {
  return std::make_unique<TransformersRunner>(model, dtype, threads, scaling);
}

}  // namespace focus

#include "generate/generator.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace focus {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

GenerateResult generate(const CausalLM& model, AttentionMethod& method, const std::vector<int32_t>& prompt,
                        const GenerateOptions& options, const std::function<bool(int32_t)>& on_token) {
  const at::NoGradGuard no_grad;
  const int64_t prompt_length = std::ssize(prompt);
  const int64_t positions = model.config().max_positions;
  require(prompt_length > 0, "the prompt has no tokens and the tokenizer adds none");
  require(prompt_length < positions, "the prompt has {} tokens, but the model's context is {}: no room for a new one",
          prompt_length, positions);
  require(prompt_length + options.max_new_tokens <= positions,
          "the prompt's {} tokens and {} new ones need a context of {}, but the model's is {}", prompt_length,
          options.max_new_tokens, prompt_length + options.max_new_tokens, positions);

  Sampler sampler(options.sampling);
  GenerateResult result;
  std::vector<int32_t> ids = prompt;
  const auto as_input = [&](int64_t begin, int64_t end) {
    return at::tensor(std::vector<int64_t>(ids.begin() + begin, ids.begin() + end), at::kLong).unsqueeze(0);
  };

  auto start = std::chrono::steady_clock::now();
  ModelCache cache;
  ForwardOptions forward;
  at::Tensor last;  // [1, d]: state of the newest token.
  method.reset_pairs();
  if (options.use_cache) {
    cache = model.make_cache(method, 1, prompt_length + options.max_new_tokens);
    forward.cache = &cache;
    for (int64_t begin = 0; begin < prompt_length; begin += options.prefill_chunk) {
      const int64_t end = std::min(begin + options.prefill_chunk, prompt_length);
      last = model.forward(as_input(begin, end), method, forward).select(1, end - begin - 1);
    }
  } else {
    last = model.forward(as_input(0, prompt_length), method).select(1, prompt_length - 1);
  }
  result.prefill_seconds = seconds_since(start);
  result.prefill_pairs = method.pairs();

  start = std::chrono::steady_clock::now();
  method.reset_pairs();
  while (std::ssize(result.ids) < options.max_new_tokens) {
    const auto next = static_cast<int32_t>(sampler.sample(model.logits(last)).item<int64_t>());
    ids.push_back(next);
    result.ids.push_back(next);
    result.stopped =
        std::find(options.stop_ids.begin(), options.stop_ids.end(), int64_t{next}) != options.stop_ids.end();
    const bool go_on = !on_token || on_token(next);
    if (result.stopped || !go_on || std::ssize(result.ids) == options.max_new_tokens) break;
    const int64_t length = std::ssize(ids);
    last = options.use_cache ? model.forward(as_input(length - 1, length), method, forward).select(1, 0)
                             : model.forward(as_input(0, length), method).select(1, length - 1);
  }
  result.decode_seconds = seconds_since(start);
  result.decode_pairs = method.pairs();
  for (const auto& layer : cache) result.cache_bytes += layer->bytes();
  return result;
}

}  // namespace focus

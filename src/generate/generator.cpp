#include "generate/generator.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace focus {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// How long a text may get.
struct Room {
  int64_t limit = 0;    // Tokens of one row.
  int64_t columns = 0;  // Tokens of the batch, padding included.
};

/// Checks the lengths.
Room room_for(const CausalLM& model, int64_t shortest, int64_t longest, const GenerateOptions& options) {
  const int64_t positions = model.config().max_positions;
  const int64_t limit = options.max_context.value_or(positions);
  require(limit <= positions, "--max-context {}: the model's context is {}", limit, positions);
  require(shortest > 0, "the prompt has no tokens and the tokenizer adds none");
  require(longest < limit, "the prompt has {} tokens, but the {} is {}: no room for a new one", longest,
          options.max_context ? "context allowed by --max-context" : "model's context", limit);
  // The sum might not fit 64 bits.
  require(options.max_context || options.max_new_tokens <= limit - longest,
          "the prompt's {} tokens and {} new ones (--max-new-tokens) do not fit the context: the model's is {}",
          longest, options.max_new_tokens, limit);
  return {limit, longest + std::min(options.max_new_tokens, limit - shortest)};
}

/// The rows of a batch side by side, padded on the left.
class Batch {
 public:
  Batch(const std::vector<std::vector<int32_t>>& prompts, int64_t longest, int64_t columns, const at::Device& device)
      : length_(longest), device_(device) {
    ids_ = at::zeros({std::ssize(prompts), columns}, at::kLong);
    starts_ = at::empty({std::ssize(prompts), columns}, at::kInt);
    for (int64_t row = 0; row < std::ssize(prompts); ++row) {
      const std::vector<int32_t>& prompt = prompts[static_cast<size_t>(row)];
      const int64_t padding = longest - std::ssize(prompt);
      ragged_ = ragged_ || padding > 0;
      ids_[row].narrow(0, padding, std::ssize(prompt)).copy_(at::tensor(prompt, at::kInt));
      starts_[row].fill_(padding);
      // A document that starts beyond the position marks padding.
      starts_[row].narrow(0, 0, padding).fill_(columns);
    }
    starts_ = starts_.to(device);
  }

  int64_t length() const { return length_; }
  at::Tensor ids(int64_t begin, int64_t end) const { return ids_.narrow(1, begin, end - begin).to(device_); }
  /// Document starts of all positions below `end`; none when no row is padded.
  std::optional<at::Tensor> starts(int64_t end) const {
    return ragged_ ? std::optional(starts_.narrow(1, 0, end)) : std::nullopt;
  }
  /// One token more in each row; in rows that have ended it is padding, which may go beyond the model's positions.
  void append(const std::vector<int32_t>& next, const std::vector<bool>& open) {
    ids_.select(1, length_).copy_(at::tensor(next, at::kInt));
    for (size_t row = 0; ragged_ && row < open.size(); ++row) {
      if (!open[row]) starts_[static_cast<int64_t>(row)][length_].fill_(starts_.size(1));
    }
    ++length_;
  }

 private:
  int64_t length_;
  at::Device device_;
  bool ragged_ = false;
  at::Tensor ids_;     // int64 [B, columns]
  at::Tensor starts_;  // int32 [B, columns]
};

/// Chooses tokens for the rows and knows which still go on.
class Rows {
 public:
  Rows(const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options, int64_t limit)
      : options_(options),
        limit_(limit),
        seen_(prompts),
        open_(prompts.size(), true),
        open_count_(std::ssize(prompts)) {
    results_.resize(prompts.size());
    for (size_t row = 0; row < prompts.size(); ++row) {
      SamplingOptions sampling = options.sampling;
      sampling.seed += row;
      samplers_.emplace_back(sampling);
    }
  }

  bool any_open() const { return open_count_ > 0; }
  const std::vector<bool>& open() const { return open_; }
  std::vector<Continuation> take() { return std::move(results_); }

  /// The next token of every row from logits [B, V]; rows that have ended repeat their last one.
  std::vector<int32_t> next(const at::Tensor& logits, const std::function<bool(int64_t, int32_t)>& on_token) {
    std::vector<int32_t> chosen(open_.size());
    for (size_t row = 0; row < open_.size(); ++row) {
      if (!open_[row]) {
        chosen[row] = seen_[row].back();
        continue;
      }
      const at::Tensor scores = logits.narrow(0, static_cast<int64_t>(row), 1);
      const auto id = static_cast<int32_t>(samplers_[row].sample(scores, seen_[row]).item<int64_t>());
      chosen[row] = id;
      seen_[row].push_back(id);
      Continuation& result = results_[row];
      result.ids.push_back(id);
      const bool stops =
          std::find(options_.stop_ids.begin(), options_.stop_ids.end(), int64_t{id}) != options_.stop_ids.end();
      const bool go_on = !on_token || on_token(static_cast<int64_t>(row), id);
      if (stops) {
        end(row, StopReason::kStopId);
      } else if (!go_on) {
        end(row, StopReason::kCaller);
      } else if (std::ssize(result.ids) == options_.max_new_tokens) {
        end(row, StopReason::kLength);
      } else if (std::ssize(seen_[row]) == limit_) {
        end(row, StopReason::kContext);
      }
    }
    return chosen;
  }

 private:
  void end(size_t row, StopReason reason) {
    results_[row].reason = reason;
    open_[row] = false;
    --open_count_;
  }

  const GenerateOptions& options_;
  int64_t limit_;
  std::vector<std::vector<int32_t>> seen_;  // Prompt and text.
  std::vector<bool> open_;
  int64_t open_count_;
  std::vector<Sampler> samplers_;
  std::vector<Continuation> results_;
};

}  // namespace

GenerateResult generate(const CausalLM& model, AttentionMethod& method,
                        const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options,
                        const std::function<bool(int64_t, int32_t)>& on_token) {
  const at::NoGradGuard no_grad;
  require(!prompts.empty(), "there is no prompt");
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [shortest, longest] = std::minmax_element(prompts.begin(), prompts.end(), shorter);
  const Room room = room_for(model, std::ssize(*shortest), std::ssize(*longest), options);
  Rows rows(prompts, options, room.limit);
  Batch batch(prompts, std::ssize(*longest), room.columns, model.parameters().front().second.device());

  ModelCache cache;
  ForwardOptions forward;
  if (options.use_cache) {
    cache = model.make_cache(method, std::ssize(prompts), room.columns, options.cache_dtype);
    forward.cache = &cache;
  }
  // Last states [B, d] of the tokens from `begin` to `end`; without a cache of all tokens up to `end`.
  const auto run = [&](int64_t begin, int64_t end) {
    forward.document_start = batch.starts(end);
    const int64_t first = options.use_cache ? begin : 0;
    return model.forward(batch.ids(first, end), method, forward).select(1, end - first - 1);
  };

  GenerateResult result;
  result.context = room.columns;
  auto start = std::chrono::steady_clock::now();
  method.reset_pairs();
  at::Tensor last;
  const int64_t chunk = options.use_cache ? options.prefill_chunk : batch.length();
  for (int64_t begin = 0; begin < batch.length(); begin += chunk) {
    last = run(begin, std::min(begin + chunk, batch.length()));
  }
  result.prefill_seconds = seconds_since(start);
  result.prefill_pairs = method.pairs();

  start = std::chrono::steady_clock::now();
  method.reset_pairs();
  while (true) {
    const std::vector<int32_t> next = rows.next(model.logits(last), on_token);
    if (!rows.any_open()) break;
    batch.append(next, rows.open());
    last = run(batch.length() - 1, batch.length());
  }
  result.decode_seconds = seconds_since(start);
  result.decode_pairs = method.pairs();
  result.rows = rows.take();
  for (const auto& layer : cache) result.cache_bytes += layer->bytes();
  return result;
}

int64_t cache_bytes(const CausalLM& model, int64_t batch, int64_t tokens, std::optional<at::ScalarType> dtype) {
  const ModelConfig& config = model.config();
  const auto element =
      static_cast<int64_t>(at::elementSize(dtype.value_or(model.parameters().front().second.scalar_type())));
  return 2 * config.num_layers * batch * config.num_kv_heads * config.head_dim * tokens * element;
}

}  // namespace focus

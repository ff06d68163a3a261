#include "cli/training_evaluation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "data/token_source.h"
#include "eval/copy_task.h"
#include "eval/perplexity.h"

namespace focus {

void TrainingEvaluation::open(const Session& session, const CommonOptions& common, int64_t context) {
  CommonOptions read = common;
  read.data = *flags_.data;
  context_ = context;
  documents_ = read_documents(session.tokenizer, read);
  windows_ = eval_windows(documents_, context, context);
  require(!windows_.empty(), "{}: no document has 2 tokens or more", flags_.data->string());
  if (std::ssize(windows_) > flags_.windows) windows_.resize(static_cast<size_t>(flags_.windows));
}

nlohmann::json TrainingEvaluation::identity() const {
  if (!given()) return nullptr;
  uint64_t hash = kHashStart;
  for (const EvalWindow& window : windows_) {
    const Document& document = documents_[static_cast<size_t>(window.document)];
    hash = hash_values(
        std::span(document).subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.end - window.begin)),
        hash);
  }
  return fmt::format("{} windows, {:016x}", windows_.size(), hash);
}

double TrainingEvaluation::loss(const CausalLM& model, AttentionMethod& method, Collective* processes) const {
  const at::NoGradGuard no_grad;
  if (processes == nullptr) return evaluate_perplexity(model, method, documents_, windows_).nll;
  std::vector<EvalWindow> mine;
  for (int64_t i = processes->rank(); i < std::ssize(windows_); i += processes->size()) mine.push_back(windows_[i]);
  at::Tensor sums = at::zeros({2}, at::kDouble);  // Of the loss, of tokens.
  if (!mine.empty()) {
    const PerplexityResult result = evaluate_perplexity(model, method, documents_, mine);
    const auto tokens = static_cast<double>(result.tokens_scored);
    sums = at::tensor({result.nll * tokens, tokens}, at::kDouble);
  }
  processes->all_reduce(sums);
  return sums[0].item<double>() / sums[1].item<double>();
}

EvalFigures TrainingEvaluation::loss_and_copy(const CausalLM& model, AttentionMethod& method) const {
  const at::NoGradGuard no_grad;
  EvalFigures figures;
  method.reset_pairs();
  figures.loss = evaluate_perplexity(model, method, documents_, windows_).nll;
  figures.pairs_kept = share(method.pairs());
  CopyTaskOptions copy;
  copy.items = std::ssize(windows_);
  copy.passage = std::min(copy.passage, context_ / 4);
  copy.filler = std::min(copy.filler, context_ / 2);
  std::vector<int32_t> ids;
  for (const Document& document : documents_) ids.insert(ids.end(), document.begin(), document.end());
  figures.copy = evaluate_copy(model, method, ids, copy).nll;
  return figures;
}

}  // namespace focus

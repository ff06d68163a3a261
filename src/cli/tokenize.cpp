#include "cli/tokenize.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "data/text_source.h"
#include "data/token_shards.h"
#include "tokenizer/tokenizer.h"

namespace focus {

namespace {

constexpr int64_t kBatchBytes = int64_t{32} << 20;

/// Tokens of every text, in its place. Throws what a worker throws.
std::vector<Document> encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int64_t workers) {
  std::vector<Document> documents(texts.size());
  std::vector<std::exception_ptr> errors(static_cast<size_t>(workers));
  std::atomic<size_t> next = 0;
  const auto work = [&](size_t worker) {
    try {
      for (size_t i = next++; i < texts.size() && !interrupted(); i = next++) {
        documents[i] = tokenizer.encode(texts[i], /*add_special_tokens=*/true);
      }
    } catch (...) {
      errors[worker] = std::current_exception();
      next = texts.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t w = 1; w < errors.size(); ++w) threads.emplace_back(work, w);
    work(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return documents;
}

}  // namespace

nlohmann::json tokenize_to_shards(const TokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const std::vector<std::filesystem::path> files = list_text_files(options.source);
  TokenShardWriter writer(options.out,
                          {.vocab_size = tokenizer.vocab_size(), .tokenizer_hash = tokenizer_hash(options.tokenizer)},
                          options.shard_tokens);
  const InterruptGuard guard;
  Progress progress("tokenizing", std::ssize(files), "files");
  TextCorpus corpus;
  int64_t documents = 0, tokens = 0, flushed_bytes = 0;
  for (const std::filesystem::path& file : files) {
    read_text_file(file, {.keep_line_wraps = options.keep_line_wraps}, corpus);
    if (corpus.bytes - flushed_bytes < kBatchBytes && &file != &files.back()) continue;
    const std::vector<Document> encoded = encode_all(tokenizer, corpus.documents, options.workers);
    if (interrupted()) fail("interrupted after {} of {} files: nothing is written", progress.done(), files.size());
    for (const Document& document : encoded) {
      if (document.empty()) continue;
      writer.add(document);
      ++documents;
      tokens += std::ssize(document);
    }
    corpus.documents.clear();
    flushed_bytes = corpus.bytes;
    progress.note(fmt::format("{} tokens", tokens));
    progress.set(std::ssize(corpus.files));
  }
  warn_about_texts(corpus, options.source);
  const int64_t shards = writer.finish();
  return {{"shards", shards},           {"documents", documents}, {"tokens", tokens},
          {"bytes", corpus.bytes},      {"files", files.size()},  {"seconds", progress.seconds()},
          {"out", options.out.string()}};
}

}  // namespace focus

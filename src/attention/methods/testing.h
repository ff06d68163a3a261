#pragma once

#include <algorithm>
#include <vector>

#include "attention/method.h"

namespace focus::method_testing {

/// Tokens [begin, end) of an input.
inline AttentionInput slice(const AttentionInput& input, int64_t begin, int64_t end) {
  AttentionInput part = input;
  part.hidden = input.hidden.slice(1, begin, end);
  part.q = input.q.slice(2, begin, end);
  part.k = input.k.slice(2, begin, end);
  part.v = input.v.slice(2, begin, end);
  if (input.document_start.has_value()) part.document_start = input.document_start->slice(1, 0, end);
  return part;
}

/// What the method gives for the input taken `chunk` tokens at a time, with a cache.
inline at::Tensor in_chunks(AttentionMethod& method, const AttentionInput& input, int64_t chunk) {
  const int64_t tokens = input.q.size(2);
  const auto cache = method.make_cache(0, input.q.size(0), tokens);
  std::vector<at::Tensor> parts;
  for (int64_t t = 0; t < tokens; t += chunk) {
    AttentionInput part = slice(input, t, std::min(tokens, t + chunk));
    part.cache = cache.get();
    parts.push_back(method.attend(part));
  }
  return at::cat(parts, 2);
}

}  // namespace focus::method_testing

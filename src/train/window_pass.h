#pragma once

#include <ATen/ATen.h>

#include "data/token_windows.h"
#include "models/model.h"

namespace focus {

/// A window's ids as a batch of one, int64 [1, T].
inline at::Tensor ids_of(const TrainWindows::Window& window) {
  return at::tensor(window.ids, at::kLong).unsqueeze(0);
}

/// Where its documents begin, if it holds several.
inline ForwardOptions forward_options(const TrainWindows::Window& window) {
  ForwardOptions options;
  if (window.document_start.back() != 0) {
    options.document_start = at::tensor(window.document_start, at::kInt).unsqueeze(0);
  }
  return options;
}

}  // namespace focus

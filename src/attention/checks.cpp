#include "attention/checks.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace focus {

namespace {

std::string shape(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void check_int32(const at::Tensor& tensor, int64_t dims, const char* name, const char* expected) {
  require(tensor.dim() == dims, "attention: {} has shape {}, expected {}", name, shape(tensor), expected);
  require(tensor.scalar_type() == at::kInt, "attention: {} has dtype {}, expected Int (int32)", name,
          c10::toString(tensor.scalar_type()));
}

}  // namespace

void check_pairs(int64_t batch, int64_t kv_heads, int64_t tq, int64_t tk, const AttentionParams& params) {
  require(tq <= tk, "attention: {} queries but only {} keys; queries are the last of the keys' positions", tq, tk);
  require(tk < std::numeric_limits<int32_t>::max(), "attention: {} keys, positions are 32 bit", tk);
  require(params.window >= 0, "attention: window is {}, expected >= 0", params.window);
  require(params.layer_window >= 0, "attention: layer_window is {}, expected >= 0", params.layer_window);
  require(params.key_group.has_value() == params.probes.has_value(),
          "attention: key_group and probes must be given together (only {} is)",
          params.key_group ? "key_group" : "probes");
  if (params.key_group) {
    const at::Tensor& groups = *params.key_group;
    const at::Tensor& probes = *params.probes;
    check_int32(groups, 3, "key_group", "[B, Hg, Tk]");
    check_int32(probes, 4, "probes", "[B, Hg, Tq, P]");
    const int64_t sets = groups.size(1);
    require(groups.size(0) == batch && groups.size(2) == tk,
            "attention: key_group has shape {}, expected [{}, 1 or {}, {}]", shape(groups), batch, kv_heads, tk);
    require(sets == 1 || sets == kv_heads || kv_heads < 0,
            "attention: key_group has {} list sets, expected 1 or one for each of the {} KV heads", sets, kv_heads);
    require(probes.size(0) == batch && probes.size(1) == sets && probes.size(2) == tq,
            "attention: probes has shape {}, expected [{}, {}, {}, P]", shape(probes), batch, sets, tq);
  }
  if (params.document_start) {
    check_int32(*params.document_start, 2, "document_start", "[B, Tk]");
    require(params.document_start->size(0) == batch && params.document_start->size(1) == tk,
            "attention: document_start has shape {}, expected [{}, {}]", shape(*params.document_start), batch, tk);
  }
}

void check_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionParams& params) {
  require(q.dim() == 4, "attention: q has shape {}, expected [B, Hq, Tq, D]", shape(q));
  require(k.dim() == 4, "attention: k has shape {}, expected [B, Hkv, Tk, D]", shape(k));
  require(v.sizes() == k.sizes(), "attention: v has shape {}, expected that of k, {}", shape(v), shape(k));
  require(q.size(0) == k.size(0), "attention: q has batch size {} but k has {}", q.size(0), k.size(0));
  require(q.size(3) == k.size(3) && q.size(3) > 0, "attention: q has head size {} but k has {}", q.size(3), k.size(3));
  require(k.size(1) > 0 && q.size(1) % k.size(1) == 0,
          "attention: {} query heads cannot share {} KV heads, expected a multiple", q.size(1), k.size(1));
  require(at::isFloatingType(q.scalar_type()), "attention: q has dtype {}, expected a floating dtype",
          c10::toString(q.scalar_type()));
  for (const auto& [name, tensor] : {std::pair{"k", &k}, std::pair{"v", &v}}) {
    require(tensor->scalar_type() == q.scalar_type(), "attention: {} has dtype {} but q has {}", name,
            c10::toString(tensor->scalar_type()), c10::toString(q.scalar_type()));
    require(tensor->device() == q.device(), "attention: {} is on {} but q is on {}", name, tensor->device().str(),
            q.device().str());
  }
  for (const auto& [name, tensor] : {std::pair{"key_group", &params.key_group}, std::pair{"probes", &params.probes},
                                     std::pair{"document_start", &params.document_start}}) {
    require(!tensor->has_value() || (*tensor)->device() == q.device(), "attention: {} is on {} but q is on {}", name,
            tensor->has_value() ? (*tensor)->device().str() : "", q.device().str());
  }
  require(std::isfinite(params.scale), "attention: scale is {}", params.scale);
  require(params.softcap >= 0 && std::isfinite(params.softcap), "attention: softcap is {}, expected 0 (none) or more",
          params.softcap);
  check_pairs(q.size(0), k.size(1), q.size(2), k.size(2), params);
}

}  // namespace focus

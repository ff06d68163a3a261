#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace focus {

/// Parts that several families share. Shapes: x [B, T, d].

/// How an RMS norm applies its weight: LLaMA rounds the normalised values to x's dtype first, OLMo-2 multiplies in
/// float32, Gemma multiplies by 1 + weight in float32.
enum class NormWeight { kAfterRounding, kBeforeRounding, kOnePlus };

/// x / sqrt(mean(x^2) + eps), times the weight, over the last dimension, normalised in float32 as in transformers; in
/// x's dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                    NormWeight kind = NormWeight::kAfterRounding);

/// rms_norm without a weight.
at::Tensor unit_rms(const at::Tensor& x, double eps);

/// x W^T + bias; an undefined bias means none. weight [out, in]. In bfloat16 and float16 sums are float32, rounded
/// once; where the CPU has no instructions for them, more than a few rows are multiplied in float32.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// linear() of the same x by several weights, each with its bias or an undefined one.
std::vector<at::Tensor> linear_each(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                    const std::vector<at::Tensor>& biases);

/// [B, T, H * D] -> [B, H, T, D] (a view), and back.
at::Tensor split_heads(const at::Tensor& x, int64_t heads);
at::Tensor merge_heads(const at::Tensor& x);

/// An element-wise activation by its name in transformers (gelu, gelu_new, silu ...). Throws Error naming an unknown
/// one and the known ones; `where` begins the message.
using Activation = at::Tensor (*)(const at::Tensor&);
Activation find_activation(const std::string& name, const std::string& where);

/// Throws Error unless ids is int64 [B, T], not empty and within [0, vocab_size), naming the id at fault.
void check_ids(const at::Tensor& ids, int64_t vocab_size);

}  // namespace focus

#include "models/projection.h"

#include "models/layers.h"

namespace focus {

at::Tensor Projection::updated(const at::Tensor& y, const at::Tensor& x) const {
  if (!update) return y;
  // As in PEFT the input takes the update's dtype, the sum that of the frozen map.
  const at::Tensor low = at::linear(at::linear(x.to(update->a.scalar_type()), update->a), update->b);
  return y + (low * update->scale).to(y.scalar_type());
}

at::Tensor Projection::operator()(const at::Tensor& x) const {
  return updated(linear(x, matrix(), bias), x);
}

std::vector<at::Tensor> project_each(const at::Tensor& x, const std::vector<const Projection*>& projections) {
  std::vector<at::Tensor> weights, biases;
  for (const Projection* projection : projections) {
    weights.push_back(projection->matrix());
    biases.push_back(projection->bias);
  }
  std::vector<at::Tensor> results = linear_each(x, weights, biases);
  for (size_t i = 0; i < projections.size(); ++i) results[i] = projections[i]->updated(results[i], x);
  return results;
}

}  // namespace focus

#include "models/model.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "attention/methods/full.h"
#include "base/error.h"
#include "models/layers.h"
#include "models/rope.h"

namespace focus {
namespace {

const std::filesystem::path kStories = std::filesystem::path(FOCUS_SOURCE_DIR) / "data/models/stories260K";

at::Tensor some_ids(int64_t batch, int64_t tokens) {
  return at::randint(3, 512, {batch, tokens}, at::kLong);
}

/// Full attention that fails at one layer.
class Failing : public FullAttention {
 public:
  at::Tensor attend(const AttentionInput& input) override {
    at::Tensor out = FullAttention::attend(input);
    if (input.layer == 3) throw std::runtime_error("on purpose");
    return out;
  }
};

TEST(Layers, RmsNormIsItsFormula) {
  const at::Tensor x = at::randn({2, 3, 8});
  const at::Tensor weight = at::randn({8});
  const at::Tensor expected = x / (x.square().mean(-1, true) + 1e-5).sqrt() * weight;
  EXPECT_TRUE(at::allclose(rms_norm(x, weight, 1e-5), expected, 1e-5, 1e-6));
  EXPECT_EQ(rms_norm(x.to(at::kBFloat16), weight.to(at::kBFloat16), 1e-5).scalar_type(), at::kBFloat16);
}

/// Where gradients are recorded, the steps are ATen's own: the oracle of those done in one go.
TEST(Layers, FusedRowsEqualTheSeparateSteps) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double unit = dtype == at::kFloat ? 0x1p-20 : dtype == at::kBFloat16 ? 0x1p-7 : 0x1p-10;
    const auto near = [&](const at::Tensor& fused, const at::Tensor& separate) {
      EXPECT_EQ(fused.scalar_type(), dtype);
      ASSERT_EQ(fused.sizes(), separate.sizes());
      EXPECT_TRUE(fused.isfinite().all().item<bool>());
      EXPECT_LE(((fused - separate).abs() / (separate.abs() + 1)).max().item<double>(), unit);
    };
    for (const auto& [tokens, size] : {std::array<int64_t, 2>{1, 576}, {3, 5}, {700, 34}}) {
      const at::Tensor x = (3 * at::randn({2, tokens, size})).to(dtype);
      const at::Tensor strided = (3 * at::randn({tokens, 2, size})).to(dtype).transpose(0, 1);
      const at::Tensor weight = (at::randn({size}) + 1).to(dtype);
      for (const at::Tensor& rows : {x, strided}) {
        const at::Tensor recorded = rows.detach().clone().requires_grad_();
        for (const NormWeight kind : {NormWeight::kAfterRounding, NormWeight::kBeforeRounding, NormWeight::kOnePlus}) {
          near(rms_norm(rows, weight, 1e-5, kind), rms_norm(recorded, weight, 1e-5, kind).detach());
        }
        near(unit_rms(rows, 1e-5), unit_rms(recorded, 1e-5).detach());
      }
    }
    for (const int64_t tokens : {1, 300}) {
      const at::Tensor heads = split_heads(at::randn({2, tokens, 3 * 16}).to(dtype), 3);
      const at::Tensor recorded = heads.detach().clone().requires_grad_();
      const at::Tensor angles = at::randn({2, 1, tokens, 8}) * 100;
      for (const at::ScalarType table : {dtype, at::kFloat}) {
        const at::Tensor cos = angles.cos().to(table);
        const at::Tensor sin = angles.sin().to(table);
        near(Rope::apply(heads, cos, sin), Rope::apply(recorded, cos, sin).detach().to(dtype));
      }
    }
  }
}

TEST(Layers, ProductsBySeveralWeightsEqualSingleOnes) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const int64_t rows : {1, 3, 40}) {
      const at::Tensor x = at::randn({1, rows, 70}).to(dtype);
      const std::vector<at::Tensor> weights = {at::randn({900, 70}).to(dtype), at::randn({7, 70}).to(dtype),
                                               at::randn({70, 650}).to(dtype).t()};
      const std::vector<at::Tensor> biases = {at::Tensor(), at::randn({7}).to(dtype), at::Tensor()};
      const std::vector<at::Tensor> together = linear_each(x, weights, biases);
      const std::vector<at::Tensor> pair = linear_each(x, {weights[0], weights[1]}, {biases[0], biases[1]});
      for (size_t i = 0; i < weights.size(); ++i) {
        const at::Tensor alone = linear(x, weights[i], biases[i]);
        EXPECT_TRUE(at::equal(together[i], alone)) << rows << " " << i;
        if (i < 2) {
          EXPECT_TRUE(at::equal(pair[i], alone)) << rows << " " << i;
        }
      }
    }
  }
}

TEST(Layers, HalfPrecisionProductsAreRoundedOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    // The last is cut into slices.
    for (const auto& [rows, in, out] :
         {std::array<int64_t, 3>{1, 70, 33}, {7, 70, 33}, {40, 70, 33}, {9, 5000, 3500}}) {
      const at::Tensor x = at::randn({2, rows, in}).to(dtype);
      const at::Tensor weight = (at::randn({out, in}) / std::sqrt(static_cast<double>(in))).to(dtype);
      const at::Tensor bias = at::randn({out}).to(dtype);
      const at::Tensor exact = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
      const at::Tensor got = linear(x, weight, bias);
      EXPECT_EQ(got.scalar_type(), dtype);
      const double unit = dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-11;
      // Of the result, not of the product: where the bias cancels it, rounding twice would show.
      EXPECT_LE(((got - exact).abs() / (exact.abs() + 0.01)).max().item<double>(), 1.01 * unit) << rows;
      EXPECT_LE((linear(x, weight, at::Tensor()) - (exact - bias)).abs().max().item<double>(), 16 * unit) << rows;
    }
  }
}

TEST(Layers, Float32ProductsOfManyRowsAreExact) {
  for (const auto& [rows, in, out] : {std::array<int64_t, 3>{63, 70, 33}, {64, 71, 33}, {301, 576, 129}}) {
    const at::Tensor x = at::randn({2, rows, in});
    const at::Tensor weight = at::randn({out, in});
    for (const at::Tensor& bias : {at::Tensor(), at::randn({out})}) {
      const auto in_dtype = [&](at::ScalarType dtype) {
        return at::linear(x.to(dtype), weight.to(dtype),
                          bias.defined() ? std::optional<at::Tensor>(bias.to(dtype)) : std::nullopt);
      };
      const at::Tensor exact = in_dtype(at::kDouble);
      const double usual = (in_dtype(at::kFloat) - exact).abs().max().item<double>();
      for (const at::Tensor& got : {linear(x, weight, bias), linear(x, weight.t().contiguous().t(), bias),
                                    linear(x.transpose(0, 1).contiguous().transpose(0, 1), weight, bias)}) {
        EXPECT_LE((got - exact).abs().max().item<double>(), 2 * usual + 1e-6) << rows;
      }
    }
  }
}

TEST(Layers, ProductsFollowAutocast) {
  const at::Tensor x = at::randn({100, 16}), weight = at::randn({8, 16});
  const bool before = at::autocast::is_autocast_enabled(at::kCPU);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor product = linear(x, weight, at::Tensor());
  at::autocast::set_autocast_enabled(at::kCPU, before);
  at::autocast::clear_cache();
  EXPECT_EQ(product.scalar_type(), at::kBFloat16);
  EXPECT_EQ(linear(x, weight, at::Tensor()).scalar_type(), at::kFloat);
}

TEST(Layers, HeadsSplitAndMerge) {
  const at::Tensor x = at::randn({2, 5, 12});
  EXPECT_EQ(split_heads(x, 3).sizes(), (std::vector<int64_t>{2, 3, 5, 4}));
  EXPECT_TRUE(merge_heads(split_heads(x, 3)).equal(x));
}

TEST(Layers, ActivationsAreKnownByName) {
  const at::Tensor x = at::linspace(-3, 3, 13);
  EXPECT_TRUE(at::allclose(find_activation("gelu_new", "t")(x),
                           0.5 * x * (1 + (std::sqrt(2 / M_PI) * (x + 0.044715 * x.pow(3))).tanh()), 1e-5, 1e-6));
  EXPECT_TRUE(find_activation("swish", "t")(x).equal(find_activation("silu", "t")(x)));
  EXPECT_THROW(find_activation("swishy", "t"), Error);
}

TEST(Model, PositionsFollowCacheAndDocuments) {
  const std::unique_ptr<CausalLM> model = load_model(kStories);
  FullAttention method;
  ModelCache cache = model->make_cache(method, 1, 16);
  ForwardOptions options;
  options.cache = &cache;
  model->forward(some_ids(1, 4), method, options);
  EXPECT_TRUE(model->positions(some_ids(1, 2), options).equal(at::tensor({4, 5}, at::kLong).view({1, 2})));
  options.document_start = at::tensor({0, 0, 0, 3, 3, 9}, at::kInt).view({1, 6});
  EXPECT_TRUE(model->positions(some_ids(1, 2), options).equal(at::tensor({1, 0}, at::kLong).view({1, 2})));
  options.document_start = at::zeros({1, 5}, at::kInt);
  EXPECT_THROW(model->positions(some_ids(1, 2), options), Error);
}

TEST(Model, AFailedPassLeavesTheCacheAsItWas) {
  const std::unique_ptr<CausalLM> model = load_model(kStories);
  FullAttention good;
  Failing failing;
  ModelCache cache = model->make_cache(good, 1, 16);
  ForwardOptions options;
  options.cache = &cache;
  const at::Tensor ids = some_ids(1, 9);
  model->forward(ids.narrow(1, 0, 4), good, options);
  EXPECT_THROW(model->forward(ids.narrow(1, 4, 5), failing, options), std::runtime_error);
  for (const std::unique_ptr<LayerCache>& layer : cache) EXPECT_EQ(layer->length(), 4);
  const at::Tensor rest = model->forward(ids.narrow(1, 4, 5), good, options);
  EXPECT_TRUE(at::allclose(rest, model->forward(ids, good).narrow(1, 4, 5), 1e-4, 1e-4));
}

TEST(Model, GradientsReachEveryWeightThatAsksForThem) {
  const std::unique_ptr<CausalLM> model = load_model(kStories);
  for (const auto& [name, weight] : model->parameters()) EXPECT_FALSE(weight.requires_grad()) << name;
  for (auto [name, weight] : model->parameters()) weight.requires_grad_();
  FullAttention method;
  const at::Tensor ids = some_ids(2, 12);
  at::cross_entropy_loss(model->logits(model->forward(ids, method)).flatten(0, 1), ids.flatten()).backward();
  for (const auto& [name, weight] : model->parameters()) {
    ASSERT_TRUE(weight.grad().defined()) << name;
    EXPECT_GT(weight.grad().abs().max().item<float>(), 0) << name;
  }
}

TEST(Model, FingerprintIgnoresTheDtypeAndSeesChanges) {
  LoadOptions half;
  half.dtype = at::kBFloat16;
  const std::unique_ptr<CausalLM> model = load_model(kStories);
  const std::string fingerprint = model_fingerprint(*model);
  EXPECT_EQ(fingerprint.size(), 16u);
  EXPECT_EQ(fingerprint, model_fingerprint(*load_model(kStories, half)));
  at::Tensor weight = model->parameters()[3].second;
  weight.mul_(2);
  EXPECT_NE(fingerprint, model_fingerprint(*model));
  EXPECT_EQ(fingerprint, model_fingerprint(*load_model(kStories))) << "the file was changed";
}

TEST(Model, RefusesIdsOutsideTheVocabulary) {
  const std::unique_ptr<CausalLM> model = load_model(kStories);
  FullAttention method;
  EXPECT_THROW(model->forward(at::full({1, 2}, 512, at::kLong), method), Error);
  EXPECT_THROW(model->forward(at::full({1, 2}, -1, at::kLong), method), Error);
  EXPECT_THROW(model->forward(at::empty({1, 0}, at::kLong), method), Error);
  EXPECT_THROW(model->forward(at::zeros({1, 2}, at::kInt), method), Error);
}

}  // namespace
}  // namespace focus

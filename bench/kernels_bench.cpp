#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/strip_math.h"

namespace focus::kernels::cpu {
namespace {

// One strip against a run of keys, all in the cache.
struct Strip {
  static constexpr int64_t kKeys = 128;

  Strip(const StripMath& math_, int64_t dim_)
      : math(math_),
        dim(dim_),
        columns(draw(dim * math.lanes)),
        keys(draw(kKeys * dim)),
        scores(draw((kKeys + kKeySlack) * math.lanes)),
        out(draw(math.lanes * dim)),
        shrink(static_cast<size_t>(math.lanes), 0.5F),
        maximum(shrink),
        sum(shrink),
        begin(static_cast<size_t>(math.lanes), 0),
        end(static_cast<size_t>(math.lanes), kKeys) {
    for (int64_t x = 0; x < kKeys; ++x) key_rows.push_back(keys.data() + x * dim);
    for (int64_t i = 0; i < math.lanes; ++i) out_rows.push_back(out.data() + i * dim);
  }

  static std::vector<float> draw(int64_t count) {
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = uniform(generator);
    return values;
  }
  StripScores view() { return {kKeys, scores.data(), begin.data(), end.data()}; }
  // Operations a second of one product of the strip with its keys.
  void count(benchmark::State& state) const {
    state.counters["FLOPS"] = benchmark::Counter(static_cast<double>(2 * kKeys * math.lanes * dim),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  }

  const StripMath& math;
  int64_t dim;
  std::vector<float> columns, keys, scores, out, shrink, maximum, sum;
  std::vector<int32_t> begin, end;
  std::vector<const float*> key_rows;
  std::vector<float*> out_rows;
};

void products(benchmark::State& state, const StripMath* math) {
  Strip strip(*math, state.range(0));
  for (auto _ : state) {
    math->products(strip.view(), strip.columns.data(), strip.dim, strip.key_rows.data(), 1.0F);
    benchmark::ClobberMemory();
  }
  strip.count(state);
}

void add_rows(benchmark::State& state, const StripMath* math) {
  Strip strip(*math, state.range(0));
  for (auto _ : state) {
    math->add_rows(strip.view(), strip.shrink.data(), strip.key_rows.data(), strip.dim, strip.out_rows.data());
    benchmark::ClobberMemory();
  }
  strip.count(state);
}

void softmax_step(benchmark::State& state, const StripMath* math) {
  Strip strip(*math, state.range(0));
  for (auto _ : state) {
    math->softmax_step(strip.view(), strip.maximum.data(), strip.sum.data(), strip.shrink.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * Strip::kKeys * math->lanes);
}

}  // namespace
}  // namespace focus::kernels::cpu

int main(int argc, char** argv) {
  using namespace focus::kernels::cpu;
  for (const StripMath* math : available_strip_math()) {
    const std::string name = math->name;
    benchmark::RegisterBenchmark(("products/" + name).c_str(), products, math)->Arg(64)->Arg(128);
    benchmark::RegisterBenchmark(("add_rows/" + name).c_str(), add_rows, math)->Arg(64)->Arg(128);
    benchmark::RegisterBenchmark(("softmax_step/" + name).c_str(), softmax_step, math)->Arg(64);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

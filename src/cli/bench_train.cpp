#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "bench/bench_line.h"
#include "cli/bench_model.h"
#include "cli/device.h"
#include "cli/output.h"

namespace focus {

namespace {

std::string heading() {
  return fmt::format("{:>8} {:<7} {:>11} {:>11} {:>11} {:>10} {:>7} {:>6} {:>9} {:>8} {:>9}  {}\n", "length", "method",
                     "ms median", "min", "max", "tokens/s", "pairs", "MFU", "attention", "peak MB", "error",
                     "times faster than");
}

std::string row(const nlohmann::json& line) {
  return fmt::format(
      "{:>8} {:<7} {:>11.1f} {:>11.1f} {:>11.1f} {:>10.1f} {:>6.1f}% {:>5.1f}% {:>8.1f}% {:>8.0f} {:>9.1e}  {}\n",
      line["length"].get<int64_t>(), line["method"].get<std::string>(), line["ms_median"].get<double>(),
      line["ms_min"].get<double>(), line["ms_max"].get<double>(), line["tokens_per_s"].get<double>(),
      100 * line["pairs_kept"].get<double>(), 100 * line["mfu"].get<double>(),
      100 * line["attention_share"].get<double>(), 1e-6 * line["peak_extra_bytes"].get<double>(),
      line["max_error"].get<double>(), ratio_text(line));
}

}  // namespace

int ModelBench::run_training(const RunContext& run, CommonOptions common, const Shared& shared) {
  if (common.dtype.value_or("float32") != "float32") {
    fail_usage("bench train: weights are trained in float32; --autocast bfloat16 gives products in bfloat16");
  }
  common.dtype = "float32";
  common.model = *model_;
  common.data = *data_;
  const Session session = open_session(common, run.device);
  train_.methods = shared.methods;
  train_.lengths = shared.lengths;
  if (run.options.given("repeats")) train_.repeats = shared.repeats;
  if (autocast_ != "none") train_.autocast = parse_dtype(autocast_);
  const std::vector<int32_t> text = read_text(session, common, shared);
  const std::shared_ptr<const Router> router = method_options(session, run.options, common, shared).router;
  const InterruptGuard guard;
  const MachinePeaks peaks = measure_peaks(BenchClock::kWall);
  const std::vector<nlohmann::json> lines =
      run_train_bench(train_, *session.model, router, text, peaks, [] { return !interrupted(); });
  if (!common.json) write_output(fmt::format("peak {:.1f} GFLOP/s float32\n{}", peaks.fma_gflops, heading()));
  for (nlohmann::json line : lines) {
    line["model"] = common.model.string();
    line["dtype"] = "float32";
    line["autocast"] = autocast_;
    line["peak_gflops"] = peaks.fma_gflops;
    line["rope_scaling"] = common.rope_scaling ? nlohmann::json(*common.rope_scaling) : nlohmann::json();
    if (common.json) {
      write_json_line(line);
    } else {
      write_output(row(line));
    }
  }
  if (!interrupted()) return 0;
  log_warning("interrupted: the remaining lengths were left out");
  return 1;
}

}  // namespace focus

#include "kernels/cpu/strip_math.h"

#include <fmt/ranges.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "base/error.h"
#include "kernels/cpu/isa/strip_math.h"

namespace focus::kernels::cpu {

namespace {

std::atomic<const StripMath*> overridden{nullptr};

// __builtin_cpu_supports looks at the operating system's part (saved registers) as well.
bool has_avx2() {
#ifdef FOCUS_HAVE_X86
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool has_avx512() {
#ifdef FOCUS_HAVE_X86
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

std::vector<const StripMath*> find_available() {
  std::vector<const StripMath*> found;
#ifdef FOCUS_HAVE_X86
  if (has_avx512()) found.push_back(&avx512::strip_math());
  if (has_avx2()) found.push_back(&avx2::strip_math());
#endif
  found.push_back(&baseline::strip_math());
  return found;
}

}  // namespace

ScoreScale::ScoreScale(float scale, float softcap) {
  factor = scale > 0.0F ? 1.0F : scale < 0.0F ? -1.0F : 0.0F;
  const float size = scale == 0.0F ? 1.0F : std::abs(scale);
  const bool capped = softcap > 0.0F;
  cap = capped ? size / softcap : 0.0F;
  multiplier = (capped ? softcap : size) * std::numbers::log2e_v<float>;
}

const std::vector<const StripMath*>& available_strip_math() {
  static const std::vector<const StripMath*> available = find_available();
  return available;
}

const StripMath& choose_strip_math() {
  const std::vector<const StripMath*>& available = available_strip_math();
  const char* wanted = std::getenv("FOCUS_CPU");
  if (wanted == nullptr || *wanted == '\0') return *available.front();
  const std::string name = wanted;
  std::vector<std::string> names;
  for (const StripMath* math : available) {
    if (name == math->name) return *math;
    names.emplace_back(math->name);
  }
  if (name == "avx2" || name == "avx512") {
    fail("FOCUS_CPU={}: this machine cannot run it; it can run {}", name, fmt::join(names, ", "));
  }
  fail_usage("FOCUS_CPU={}: no such instruction set; expected baseline, avx2 or avx512", name);
}

const StripMath& strip_math() {
  const StripMath* math = overridden.load(std::memory_order_relaxed);
  if (math != nullptr) return *math;
  static const StripMath& choice = choose_strip_math();
  return choice;
}

void override_strip_math(const StripMath* math) {
  overridden = math;
}

const char* instruction_set() {
  return strip_math().name;
}

}  // namespace focus::kernels::cpu

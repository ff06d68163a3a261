#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The inner loops of the CPU attention kernel. They work on strips: `lanes` query rows side by side, each in a vector
/// lane, so that scores are stored transposed, [key][lane], row maxima and sums are vertical and masks are lane
/// compares. Rows of q, k, v and of the results are given by pointers, so that rows scattered over a larger array take
/// part without being copied.
namespace focus::kernels::cpu {

/// Head sizes are padded to a multiple of this.
constexpr int64_t kLanes = 16;

constexpr int64_t pad_lanes(int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}

/// Scores of a strip are computed in groups of up to kKeySlack + 1 keys: score buffers have that many rows to spare.
constexpr int64_t kKeySlack = 7;
/// Products of weights and rows are computed for this many result rows at once: arrays of result rows are padded with
/// pointers to a spare row up to a multiple.
constexpr int64_t kRowGroup = 6;

/// The scores of one strip for `keys` keys. Lane i may meet the keys begin[i] .. end[i] - 1 of them (none if begin >=
/// end); lanes without a row have none.
struct StripScores {
  int64_t keys = 0;
  float* scores = nullptr;         ///< [keys][lanes]
  const int32_t* begin = nullptr;  ///< [lanes]
  const int32_t* end = nullptr;    ///< [lanes]
  float multiplier = 1.0F;         ///< Of the scores, > 0, inside the power of 2: scale * log2(e).
  /// 0, or the factor inside a cap: scores become tanh(cap * score) first (scale / softcap, and then multiplier is
  /// softcap * log2(e)).
  float cap = 0.0F;
};

/// Some keys and values for one query, whose heads share them.
struct DecodeChunk {
  int64_t heads = 1;
  int64_t dim = 0;
  int64_t value_dim = 0;
  int64_t count = 0;
  const void* const* keys = nullptr;    ///< [count] rows of dim values, float32 or bfloat16
  const void* const* values = nullptr;  ///< [count] rows of value_dim values
  bool bfloat16 = false;
  float factor = 1.0F, multiplier = 1.0F, cap = 0.0F;  ///< See ScoreScale.
};

/// How q.k becomes a power of 2: scores are `factor` * q.k (the sign of the scale, or 0), the rest is done inside the
/// exponential, where it costs no rounding: see StripScores for `multiplier` and `cap`.
struct ScoreScale {
  float factor, multiplier, cap;
  /// softcap 0: none.
  ScoreScale(float scale, float softcap);
};

/// One instruction set's version of the inner loops. All take and give float32.
struct StripMath {
  const char* name;
  int64_t lanes;

  /// out[d][lane] = rows[lane][d], d < dim, for all lanes.
  void (*transpose)(const float* const* rows, int64_t dim, float* out);

  /// scores[x][lane] = factor * sum_d columns[d][lane] * keys[x][d] for all keys x that the lane may meet; other cells
  /// are left as they are or get the same sum. May write kKeySlack rows more.
  void (*products)(const StripScores& strip, const float* columns, int64_t dim, const float* const* keys, float factor);

  /// One step of online softmax in base 2: turns scores s into 2^(multiplier * s - m_new), 0 where not allowed, and
  /// brings maximum m and sum l of the lanes up to date. shrink[lane] = 2^(m_old - m_new) is what earlier sums must be
  /// multiplied by. Lanes without a key keep their state and get shrink 1. Start with a finite maximum below all
  /// others.
  void (*softmax_step)(const StripScores& strip, float* maximum, float* sum, float* shrink);

  /// Backward: scores become A = 2^(multiplier * s - lse) and grad (dL/dA, same layout) becomes scale * A * (dL/dA -
  /// delta), with the softcap's factor where there is one; both 0 where not allowed. lse in base 2.
  void (*softmax_gradient)(const StripScores& strip, float* grad, const float* lse, const float* delta, float scale);

  /// out[lane][d] = shrink[lane] * out[lane][d] + sum over the lane's keys x of scores[x][lane] * rows[x][d], d < width
  /// (a multiple of kLanes). Scores of the keys that a lane's neighbours alone may meet must be 0.
  void (*add_rows)(const StripScores& strip, const float* shrink, const float* const* rows, int64_t width,
                   float* const* out);

  /// out[x][d] += sum over strips and lanes of weights[strip][x][lane] * rows[strip * lanes + lane][d], x < keys, d <
  /// width. Strips are strip_stride apart in weights; of strip s only the keys begin[s] .. end[s] - 1 have weights,
  /// rounded outwards to kRowGroup (the cells in between hold 0). out is padded to a multiple of kRowGroup.
  void (*add_outer)(int64_t keys, const float* weights, int64_t strips, int64_t strip_stride, const int32_t* begin,
                    const int32_t* end, const float* const* rows, int64_t width, float* const* out);

  /// Widens bfloat16 (as bits) to float32.
  void (*widen)(const uint16_t* from, int64_t count, float* to);

  /// Online softmax and weighted sum of some keys of one query: q [heads][dim], scores [heads][count] as scratch; state
  /// maximum and sum [heads] (base 2, as in softmax_step) and out [heads][value_dim], not normalised.
  void (*decode_step)(const DecodeChunk& chunk, const float* q, float* scores, float* maximum, float* sum, float* out);
};

/// The versions that this machine can run, the preferred first; "baseline" is always among them.
const std::vector<const StripMath*>& available_strip_math();

/// The preferred version, or the one that the environment variable FOCUS_CPU names (baseline, avx2, avx512). Throws
/// UsageError for a name that does not exist and Error for one that this machine lacks.
const StripMath& choose_strip_math();

/// The version in use: what choose_strip_math() said at the first call.
const StripMath& strip_math();

/// Testing hook: uses this version from now on; null goes back to the default.
void override_strip_math(const StripMath* math);

/// The instruction set in use: the name of strip_math().
const char* instruction_set();

}  // namespace focus::kernels::cpu

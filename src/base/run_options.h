#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/baseline_options.h"
#include "base/memory.h"
#include "base/options.h"

namespace focus {

/// Which of the common flags a command takes besides those that every command has. A command declares only what it
/// uses.
enum CommonFlags : unsigned {
  kModelFlags = 1,      ///< --model, --dtype
  kAdapterFlag = 2,     ///< --adapter
  kDataFlags = 4,       ///< --data, --keep-line-wraps
  kOutFlag = 8,         ///< --out
  kSeedFlag = 16,       ///< --seed
  kOptionalModel = 32,  ///< --model may be absent
  kRopeFlag = 64,       ///< --rope-scaling
  kLoraFlag = 128,      ///< --lora
  kOptionalData = 256,  ///< --data may be absent
  kWeightsFlag = 512,   ///< --weights
};

/// Flags that several commands share.
struct CommonOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> adapter;
  std::optional<std::filesystem::path> lora;
  bool force = false;  ///< Take an adapter of another base.
  std::filesystem::path data;
  std::optional<std::filesystem::path> out;
  std::optional<std::string> dtype;         ///< float32, bfloat16 or float16; absent: as stored.
  std::optional<std::string> rope_scaling;  ///< TYPE:FACTOR.
  WeightMemory weights = WeightMemory::kMapped;
  std::string device = "cpu";      ///< cpu, cuda or cuda:N.
  std::optional<int64_t> threads;  ///< Absent: default_thread_count().
  int64_t seed = 0;
  bool keep_line_wraps = false;
  bool json = false;
  bool quiet = false;
  bool verbose = false;

  /// Declares the flags of every command (--device --threads --json --quiet --verbose) and those asked for, a union of
  /// CommonFlags.
  void declare(OptionTable& table, unsigned flags);
};

/// How tokens are grouped and which pairs attend (docs/design.md, sections 2 and 3). Where an adapter is loaded, its
/// own values hold for every flag that was not given (OptionTable::given).
struct AttentionOptions {
  std::string method = "focus";
  int64_t groups = 64;           ///< K, lists a head.
  int64_t groups_per_token = 8;  ///< P, lists that a query probes; with symmetric the paper's k.
  int64_t window = 128;          ///< Keys at a distance up to this are always attended.
  int64_t sinks = 4;             ///< First positions of a document that all tokens attend.
  int64_t group_dim = 16;        ///< d_g, dimensions of the index.
  double tau = 0.1;              ///< Temperature of the group scores.
  int64_t sinkhorn_iters = 10;
  bool shared = false;             ///< One set of lists a layer instead of one a KV head.
  bool symmetric = false;          ///< The paper's form: a token joins its k groups on both sides.
  bool global_group = false;       ///< The list that every query probes takes learned keys too.
  std::string routing = "causal";  ///< causal or paper (batch Sinkhorn at inference; leaks).
  BaselineOptions baselines;       ///< Of the comparison methods.

  /// Declares --method (one of `methods`) and the flags of the comparison methods, both left out when that is empty,
  /// and the flags of groups. With --symmetric and neither given, K and k become the paper's 8 and 1: see resolve().
  /// `default_method` is what help says of the method where none is given (default: that of this struct).
  void declare(OptionTable& table, const std::vector<std::string>& methods, const std::string& default_method = "");
  /// To be called after parsing: fills in what depends on other flags and checks flags against each other. Throws
  /// UsageError with both numbers (more groups per token than groups) and for flags of another method.
  void resolve(const OptionTable& table);
  /// Where a method runs a model: without --method "focus" if there is an adapter, else "full". Throws UsageError,
  /// naming flag and method, for a flag that was changed though the method does nothing with it, --adapter (which
  /// "full" may read head scales from) and --force among them, and for "focus" without an adapter. The table must have
  /// --method and --force.
  void choose_method(const OptionTable& table, bool adapter);
  /// To be called after choose_method() when the folder `adapter` turns out to hold no lists, only head scales: without
  /// --method "full". Throws UsageError as above, and for "focus".
  void choose_without_lists(const OptionTable& table, const std::string& adapter);

 private:
  bool takes_method_ = false;  // Whether --method was declared.
};

}  // namespace focus

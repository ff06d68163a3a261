#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/options.h"
#include "train/group_balance.h"

namespace focus {

/// Flags of --objective lm-gate by which groups are kept even.
struct GateFlags {
  GroupBalance balance;

  void declare(OptionTable& table);
  /// Names of the flags declared here; they mean nothing with another objective.
  static std::vector<const char*> flags();
  /// Refuses settings that the chosen normaliser and mitigation have no use for. Throws UsageError.
  void check(const OptionTable& table) const;
  /// What must be the same for a checkpoint to be continued.
  nlohmann::json identity() const;
  std::string normaliser() const;
  std::string mitigation() const;
};

}  // namespace focus

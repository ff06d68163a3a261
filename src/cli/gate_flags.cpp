#include "cli/gate_flags.h"

#include <algorithm>

#include "base/error.h"

namespace focus {

namespace {

template <typename E>
std::string name_of(const std::vector<std::pair<std::string, E>>& names, E value) {
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.second == value; });
  require(found != names.end(), "a choice without a name");
  return found->first;
}

}  // namespace

void GateFlags::declare(OptionTable& table) {
  table.add_choice(
      "normaliser", &balance.normaliser, group_normalisers(),
      "with lm-gate, how scores become memberships: softmax over groups; Sinkhorn over the window's tokens "
      "(the paper's, not causal); or softmax with balance potentials that follow earlier windows (causal)");
  table.add_choice(
      "mitigation", &balance.mitigation, group_mitigations(),
      "with lm-gate, what else keeps groups alive: an entropy and balance loss; no gradient from groups into "
      "hidden states; centroids as moving averages of their tokens; k-means every --recluster-every steps");
  table
      .add("auxiliary-weight", &balance.auxiliary_weight,
           "of the entropy and balance loss beside the language-model loss")
      .at_least(0);
  table.add("balance-weight", &balance.balance_weight, "of the balance term in the entropy and balance loss")
      .at_least(0);
  table
      .add("ema-decay", &balance.ema_decay,
           "by window, of the potentials of --normaliser potentials and of EMA centroids")
      .at_least(0)
      .below(1);
  table.add("recluster-every", &balance.recluster_every, "steps from one k-means to the next").at_least(1);
  table.add("freeze-projection", &balance.freeze_projection,
            "with lm-gate, leave the projection as it was made; only centroids are trained");
}

std::vector<const char*> GateFlags::flags() {
  return {"normaliser", "mitigation",      "auxiliary-weight", "balance-weight",
          "ema-decay",  "recluster-every", "freeze-projection"};
}

void GateFlags::check(const OptionTable& table) const {
  const bool balances = balance.mitigation == GroupMitigation::kEntropyBalance;
  const bool averages =
      balance.mitigation == GroupMitigation::kEmaCentroids || balance.normaliser == GroupNormaliser::kPotentials;
  if (balances && balance.normaliser == GroupNormaliser::kSinkhorn) {
    fail_usage(
        "--mitigation entropy-balance with --normaliser sinkhorn: its groups are even in sum, nothing is left to "
        "balance; use softmax or potentials");
  }
  for (const char* flag : {"auxiliary-weight", "balance-weight"}) {
    if (!balances && table.changed(flag)) fail_usage("--{} needs --mitigation entropy-balance", flag);
  }
  if (!averages && table.changed("ema-decay")) {
    fail_usage("--ema-decay needs --mitigation ema-centroids or --normaliser potentials");
  }
  if (balance.mitigation != GroupMitigation::kRecluster && table.changed("recluster-every")) {
    fail_usage("--recluster-every needs --mitigation recluster");
  }
  if (balance.normaliser == GroupNormaliser::kSoftmax && table.changed("sinkhorn-iters")) {
    fail_usage("--sinkhorn-iters has no meaning with --normaliser softmax");
  }
}

nlohmann::json GateFlags::identity() const {
  return {{"normaliser", normaliser()},
          {"mitigation", mitigation()},
          {"auxiliary_weight", balance.auxiliary_weight},
          {"balance_weight", balance.balance_weight},
          {"ema_decay", balance.ema_decay},
          {"recluster_every", balance.recluster_every},
          {"freeze_projection", balance.freeze_projection}};
}

std::string GateFlags::normaliser() const {
  return name_of(group_normalisers(), balance.normaliser);
}

std::string GateFlags::mitigation() const {
  return name_of(group_mitigations(), balance.mitigation);
}

}  // namespace focus

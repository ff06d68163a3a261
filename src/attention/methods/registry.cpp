#include "attention/methods/registry.h"

#include <fmt/ranges.h>

#include "attention/methods/focus_attention.h"
#include "attention/methods/full.h"
#include "attention/methods/random_groups.h"
#include "attention/methods/window.h"
#include "base/error.h"

namespace focus {

namespace {

using Made = std::unique_ptr<AttentionMethod>;

Made make_focus(const MethodOptions& options) {
  if (options.router == nullptr) fail_usage("--method focus: needs a trained router, give --adapter");
  return std::make_unique<FocusAttention>(options.router);
}

struct Entry {
  const char* name;
  Made (*make)(const MethodOptions&);
};

constexpr Entry kMethods[] = {
    {"focus", make_focus},
    {"full", [](const MethodOptions&) -> Made { return std::make_unique<FullAttention>(); }},
    {"window", [](const MethodOptions& o) -> Made { return std::make_unique<WindowAttention>(o.routing); }},
    {"random-groups", [](const MethodOptions& o) -> Made { return std::make_unique<RandomGroups>(o.routing, o.seed); }},
};

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kMethods) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<AttentionMethod> make_method(const std::string& name, const MethodOptions& options) {
  for (const Entry& entry : kMethods) {
    if (name == entry.name) return entry.make(options);
  }
  const std::string nearest = nearest_name(name, method_names());
  fail_usage("--method {}: no such method{}; known: {}", name, nearest.empty() ? "" : ", did you mean " + nearest + "?",
             fmt::join(method_names(), ", "));
}

}  // namespace focus

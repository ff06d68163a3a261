#include "weights/state_dict.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "weights/dtype.h"

namespace focus {

namespace {

constexpr size_t kNamesListed = 10;

std::string listed(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kNamesListed);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

StateDict::StateDict(std::vector<std::pair<std::string, at::Tensor>> tensors, std::string origin)
    : origin_(std::move(origin)) {
  for (auto& [name, tensor] : tensors) {
    const bool inserted = entries_.emplace(name, Entry{std::move(tensor)}).second;
    require(inserted, "{}: the weight '{}' is given twice", origin_, name);
    order_.push_back(name);
  }
}

bool StateDict::contains(const std::string& name) const {
  return entries_.contains(name);
}

std::vector<std::string> StateDict::names() const {
  return order_;
}

int64_t StateDict::size_in(std::optional<at::ScalarType> dtype) const {
  int64_t bytes = 0;
  for (const auto& [name, entry] : entries_) {
    bytes += entry.tensor.numel() * static_cast<int64_t>(c10::elementSize(dtype.value_or(entry.tensor.scalar_type())));
  }
  return bytes;
}

at::Tensor StateDict::take(const std::string& name, at::IntArrayRef shape) {
  std::optional<at::Tensor> tensor = take_optional(name, shape);
  if (!tensor.has_value()) {
    missing_.push_back(name);
    return {};
  }
  return *tensor;
}

std::optional<at::Tensor> StateDict::take_optional(const std::string& name, at::IntArrayRef shape) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return std::nullopt;
  Entry& entry = found->second;
  entry.used = true;
  if (entry.tensor.sizes() != shape) {
    unfit_.push_back(fmt::format("{} has shape [{}], expected [{}]", name, fmt::join(entry.tensor.sizes(), ", "),
                                 fmt::join(shape, ", ")));
    return at::Tensor();
  }
  if (!at::isFloatingType(entry.tensor.scalar_type())) {
    unfit_.push_back(
        fmt::format("{} has dtype {}, expected a floating one", name, dtype_name(entry.tensor.scalar_type())));
    return at::Tensor();
  }
  return entry.tensor;
}

void StateDict::ignore_suffix(std::string suffix) {
  ignored_suffixes_.push_back(std::move(suffix));
}

void StateDict::require_all_used() const {
  std::vector<std::string> unused;
  for (const std::string& name : order_) {
    const bool ignored = std::any_of(ignored_suffixes_.begin(), ignored_suffixes_.end(),
                                     [&](const std::string& suffix) { return name.ends_with(suffix); });
    if (!entries_.at(name).used && !ignored) unused.push_back(name);
  }
  std::string faults;
  const auto report = [&](const std::vector<std::string>& names, std::string_view what) {
    if (!names.empty())
      faults += fmt::format("{}{} {} ({})", faults.empty() ? "" : "; ", names.size(), what, listed(names));
  };
  report(missing_, "missing");
  report(unfit_, "that do not fit");
  report(unused, "unused");
  require(faults.empty(), "{}: the weights do not match the configuration: {}", origin_, faults);
}

}  // namespace focus

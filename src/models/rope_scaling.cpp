#include "models/rope_scaling.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "models/config_fields.h"
#include "models/rope.h"

namespace focus {

std::vector<std::string> rope_scaling_types() {
  return {"linear", "yarn"};
}

RopeScaling parse_rope_scaling(const std::string& text) {
  const size_t colon = std::min(text.find(':'), text.size());
  RopeScaling scaling{text.substr(0, colon), 0};
  const std::vector<std::string> known = rope_scaling_types();
  if (std::find(known.begin(), known.end(), scaling.type) == known.end()) {
    fail_usage("--rope-scaling {}: no scaling '{}'; expected TYPE:FACTOR with one of {}", text, scaling.type,
               fmt::join(known, ", "));
  }
  const char* begin = text.data() + std::min(colon + 1, text.size());
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, scaling.factor);
  if (begin == end || error != std::errc() || stop != end || !std::isfinite(scaling.factor) || scaling.factor <= 1) {
    fail_usage("--rope-scaling {}: expected a factor above 1 after the type, such as {}:4", text, scaling.type);
  }
  return scaling;
}

nlohmann::json with_rope_scaling(nlohmann::json config, const RopeScaling& scaling, const std::string& file) {
  const ConfigFields fields(config, file);
  const RopeConfig own = RopeConfig::read(fields);
  require(own.type == "default", "{}: --rope-scaling {}: the model has a rotary scaling of its own, {}", file,
          scaling.type, own.type);
  require(fields.has("max_position_embeddings"), "{}: --rope-scaling needs the field max_position_embeddings", file);
  const double context = std::floor(static_cast<double>(own.max_positions) * scaling.factor);
  require(context < std::ldexp(1.0, 31), "{}: --rope-scaling {}:{} gives a context of {} tokens, expected below 2^31",
          file, scaling.type, scaling.factor, context);
  config.erase("rope_scaling");
  config["rope_parameters"] = {{"rope_type", scaling.type},
                               {"rope_theta", own.theta},
                               {"factor", scaling.factor},
                               {"original_max_position_embeddings", own.max_positions}};
  config["max_position_embeddings"] = static_cast<int64_t>(context);
  return config;
}

}  // namespace focus

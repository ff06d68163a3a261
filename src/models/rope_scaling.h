#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model.h"

namespace focus {

/// Types that --rope-scaling takes. Those whose frequencies follow the length of the text (dynamic) are not among them:
/// cached keys would be turned otherwise than recomputed ones.
std::vector<std::string> rope_scaling_types();

/// Reads "TYPE:FACTOR", such as yarn:4. Throws UsageError naming what is wrong with it.
RopeScaling parse_rope_scaling(const std::string& text);

/// A config.json with this scaling of its rotary positions and max_position_embeddings times the factor, as one would
/// write it for transformers. Throws Error when the config has a scaling of its own or states no context; `file` begins
/// the message.
nlohmann::json with_rope_scaling(nlohmann::json config, const RopeScaling& scaling, const std::string& file);

}  // namespace focus

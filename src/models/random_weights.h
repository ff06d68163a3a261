#pragma once

#include <cstdint>

#include "models/config_fields.h"
#include "models/loading.h"

namespace focus {

/// How a model after `config` starts before training: see init_model.
WeightInit random_weights(const ConfigFields& config, uint64_t seed);

}  // namespace focus

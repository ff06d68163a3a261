#pragma once

#include "kernels/cpu/strip_math.h"

/// The inner loops compiled for one instruction set each.
namespace focus::kernels::cpu {

namespace baseline {
const StripMath& strip_math();
}
namespace avx2 {
const StripMath& strip_math();
}
namespace avx512 {
const StripMath& strip_math();
}
/// The code of avx512, its vectors split by the compiler so that it runs on AVX2. For tests only.
namespace wide {
const StripMath& strip_math();
}

}  // namespace focus::kernels::cpu

// The last two steps of a bundle that answers with logits, as mrcfa/resize.py does them.
#pragma once

#include "bundle.hpp"

namespace mrcfa {

/// `logits` (1, classes, h, w) in FP32 or FP16, as `spec` says, resized to `network`, then to
/// `frame`; `mask` receives the best class of each pixel.
void mask_of_logits(const void* logits, const TensorSpec& spec, Size network, Size frame,
                    std::uint8_t* mask);

}  // namespace mrcfa

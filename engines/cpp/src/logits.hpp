// The last two steps of a bundle that answers with logits. Python: mrcfa/stream/resize.py.
#pragma once

#include "bundle.hpp"

namespace mrcfa {

/// Resizes `logits` (1, classes, h, w), in FP32 or FP16 as `spec` says, to `network` and then to
/// `frame`, and writes the best class of each pixel to `mask`.
void mask_of_logits(const void* logits, const TensorSpec& spec, Size network, Size frame,
                    std::uint8_t* mask);

}  // namespace mrcfa

// The Vulkan devices of this machine, from the loader itself, so that nothing is linked.
#pragma once

#include <string>
#include <vector>

namespace mrcfa {

struct VulkanDevice {
  std::string name;
  bool software;  ///< True if a CPU does the work.
};

/// The devices, the one that WebGPU takes first; empty if there is no Vulkan.
std::vector<VulkanDevice> vulkan_devices();

}  // namespace mrcfa

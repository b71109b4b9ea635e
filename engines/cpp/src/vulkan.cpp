#include "vulkan.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace mrcfa {
namespace {

constexpr std::uint32_t kCreateInstance = 1;  // VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
constexpr std::uint32_t kCpu = 4;             // VK_PHYSICAL_DEVICE_TYPE_CPU
constexpr std::size_t kName = 256;
constexpr std::size_t kRest = 1024;

/// VkInstanceCreateInfo.
struct InstanceInfo {
  std::uint32_t kind = kCreateInstance;
  const void* next = nullptr;
  std::uint32_t flags = 0;
  const void* application = nullptr;
  std::uint32_t layer_count = 0;
  const void* layers = nullptr;
  std::uint32_t extension_count = 0;
  const void* extensions = nullptr;
};

/// VkPhysicalDeviceProperties, whose limits are not read.
struct Properties {
  std::uint32_t api = 0;
  std::uint32_t driver = 0;
  std::uint32_t vendor = 0;
  std::uint32_t device = 0;
  std::uint32_t kind = 0;
  std::array<char, kName> name{};
  alignas(8) std::array<std::uint8_t, kRest> rest{};
};

/// The preferred type first: discrete, integrated, virtual, other, CPU.
int rank(std::uint32_t kind) {
  constexpr std::array<int, 5> ranks = {3, 1, 0, 2, 4};
  return kind < ranks.size() ? ranks[kind] : 3;
}

}  // namespace

std::vector<VulkanDevice> vulkan_devices() {
  // Never closed, as drivers do not like to go while their process stays.
  static void* const loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (loader == nullptr) {
    return {};
  }
  const auto create = reinterpret_cast<int (*)(const InstanceInfo*, const void*, void**)>(
      dlsym(loader, "vkCreateInstance"));
  const auto destroy =
      reinterpret_cast<void (*)(void*, const void*)>(dlsym(loader, "vkDestroyInstance"));
  const auto list = reinterpret_cast<int (*)(void*, std::uint32_t*, void**)>(
      dlsym(loader, "vkEnumeratePhysicalDevices"));
  const auto describe = reinterpret_cast<void (*)(void*, Properties*)>(
      dlsym(loader, "vkGetPhysicalDeviceProperties"));
  const InstanceInfo info;
  void* instance = nullptr;
  if (create == nullptr || destroy == nullptr || list == nullptr || describe == nullptr ||
      create(&info, nullptr, &instance) != 0) {
    return {};
  }
  std::uint32_t count = 0;
  std::vector<void*> handles;
  if (list(instance, &count, nullptr) == 0) {
    handles.resize(count);
    list(instance, &count, handles.data());
    handles.resize(std::min<std::size_t>(count, handles.size()));
  }
  std::vector<Properties> found(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    describe(handles[i], &found[i]);
  }
  destroy(instance, nullptr);
  std::stable_sort(found.begin(), found.end(), [](const Properties& one, const Properties& other) {
    return rank(one.kind) < rank(other.kind);
  });
  std::vector<VulkanDevice> devices;
  for (const Properties& each : found) {
    devices.push_back({each.name.data(), each.kind == kCpu});
  }
  return devices;
}

}  // namespace mrcfa

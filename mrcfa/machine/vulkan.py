"""The Vulkan devices of this machine, from the loader itself, so that no package is needed."""

import ctypes
import sys
from dataclasses import dataclass

_CREATE_INSTANCE = 1  # VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
_CPU = 4  # VK_PHYSICAL_DEVICE_TYPE_CPU
_KINDS = (2, 1, 3, 0, _CPU)
"""Types of devices, the preferred one first: discrete, integrated, virtual, other, CPU."""
NO_VULKAN = (
    "there is no Vulkan device here, on which WebGPU computes; install the GPU's driver and "
    "Vulkan's loader (Debian: apt install libvulkan1 mesa-vulkan-drivers)"
)


@dataclass(frozen=True)
class VulkanDevice:
    name: str
    software: bool
    """True if a CPU does the work."""


class _InstanceInfo(ctypes.Structure):
    """VkInstanceCreateInfo."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layer_count", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("extension_count", ctypes.c_uint32),
        ("extensions", ctypes.c_void_p),
    )


class _Properties(ctypes.Structure):
    """VkPhysicalDeviceProperties, whose limits are not read."""

    _fields_ = (
        ("api", ctypes.c_uint32),
        ("driver", ctypes.c_uint32),
        ("vendor", ctypes.c_uint32),
        ("device", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("rest", ctypes.c_char * 1024),
    )


def vulkan_devices() -> list[VulkanDevice] | None:
    """The devices, the one that WebGPU takes first; None where WebGPU does not use Vulkan."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        vulkan = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return []
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    info = _InstanceInfo(kind=_CREATE_INSTANCE)
    if vulkan.vkCreateInstance(ctypes.byref(info), None, ctypes.byref(instance)):
        return []
    try:
        if vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None):
            return []
        handles = (ctypes.c_void_p * count.value)()
        vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
        found = []
        for handle in handles[: count.value]:
            properties = _Properties()
            vulkan.vkGetPhysicalDeviceProperties(ctypes.c_void_p(handle), ctypes.byref(properties))
            found.append(properties)
    finally:
        vulkan.vkDestroyInstance(instance, None)
    ranked = sorted(found, key=lambda each: _KINDS.index(each.kind) if each.kind in _KINDS else 3)
    return [VulkanDevice(each.name.decode(errors="replace"), each.kind == _CPU) for each in ranked]

"""A GPU that is software, SwiftShader: the Vulkan driver that Debian's chromium brings."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

FOLDERS = (Path("/usr/lib/chromium"), Path("/usr/lib/chromium-browser"))


def missing() -> str:
    """The part that the machine lacks for it; empty if all are there."""
    if find_spec("onnxruntime_ep_webgpu") is None:
        return "onnxruntime-ep-webgpu is not installed"
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return "libvulkan1 is not installed"
    return "" if _driver() else "chromium, which brings SwiftShader, is not installed"


def environment() -> dict[str, str]:
    """The variables that let a new process, and its Vulkan, use it."""
    return {"VK_ICD_FILENAMES": str(_driver()), "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1"}


def _driver() -> Path | None:
    files = (folder / "vk_swiftshader_icd.json" for folder in FOLDERS)
    return next((file for file in files if file.is_file()), None)

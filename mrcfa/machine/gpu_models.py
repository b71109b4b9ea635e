"""NVIDIA's GPUs: compute capabilities by name, and the published peaks of some of each class."""

from collections.abc import Iterable
from dataclasses import dataclass

# From NVIDIA's list of compute capabilities (developer.nvidia.com/cuda-gpus) and, because that one
# lacks many GPUs of laptops and of data centers, from the PCI IDs in the README of its open kernel
# modules: they tell the chip, and a chip has one compute capability.
_FAMILIES: dict[int, tuple[str, ...]] = {
    72: ("Jetson AGX Xavier", "Jetson Xavier NX", "Jetson Xavier"),
    75: (
        *(f"Quadro RTX {number}" for number in (3000, 4000, 5000, 6000, 8000)),
        *(f"T{number}" for number in (4, 400, 500, 550, 600, 1000, 1200, 2000)),
        *("T4G", "T400E"),
        *(f"Quadro T{number}" for number in (1000, 2000)),
        *(f"GeForce RTX {number}" for number in (2060, 2070, 2080)),
        *(f"GeForce GTX {number}" for number in (1630, 1650, 1660)),
        *("GeForce MX450", "GeForce MX550", "Titan RTX"),
    ),
    80: ("A30", "A100", "A800", "AX800"),
    86: (
        *(
            f"RTX A{number}"
            for number in (400, 500, 1000, 2000, 3000, 4000, 4500, 5000, 5500, 6000)
        ),
        "RTX A4000H",
        *(f"GeForce RTX {number}" for number in (3050, 3060, 3070, 3080, 3090)),
        *("GeForce RTX 2050", "GeForce MX570", "GeForce MX570 A"),  # GA107, as the RTX 3050
        *("A2", "A10", "A10G", "A10M", "A16", "A40"),
    ),
    87: ("Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano", "Jetson Orin"),
    89: (
        *(f"RTX {number} Ada" for number in (500, 1000, 2000, 3000, 3500)),
        *(f"RTX {number} Ada" for number in (4000, 4500, 5000, 5880, 6000)),
        "RTX 2000E Ada",
        *(f"GeForce RTX {number}" for number in (4050, 4060, 4070, 4080, 4090)),
        "GeForce RTX 3050 A",  # AD106
        *("L2", "L4", "L20", "L40", "L40S"),
    ),
    90: ("H20", "H100", "H200", "H800", "GH200"),
    100: ("B200", "GB200"),
    103: ("B300", "GB300"),
    110: ("Jetson AGX Thor", "Jetson T5000", "Jetson T4000", "Jetson Thor"),
    120: (
        *(f"RTX PRO {number}" for number in (500, 1000, 2000, 3000, 4000, 4500, 5000, 6000)),
        "RTX 6000D",
        *(f"GeForce RTX {number}" for number in (5050, 5060, 5070, 5080, 5090)),
    ),
    121: ("GB10", "DGX Spark"),
}
COMPUTE_CAPABILITIES = {name: sm for sm, names in _FAMILIES.items() for name in names}
"""Name -> compute capability without the dot."""

PAPER_GPU = "Quadro RTX 6000"
LAUNCH_S = 2e-6
"""Approximate time between two kernels of a CUDA graph."""


@dataclass(frozen=True)
class GpuModel:
    """A GPU's published peaks: dense FP16 on tensor cores, and memory bandwidth."""

    name: str
    sm: int
    """Compute capability."""
    tflops: float
    gb_per_s: float

    def seconds(self, multiply_adds: float, moved: float) -> float:
        """Roofline time: the longer of arithmetic and memory traffic."""
        return max(self.arithmetic(multiply_adds), self.memory(moved))

    def arithmetic(self, multiply_adds: float) -> float:
        return 2 * multiply_adds / (self.tflops * 1e12)

    def memory(self, moved: float) -> float:
        return moved / (self.gb_per_s * 1e9)

    def bound(self, multiply_adds: float, moved: float) -> str:
        """The resource that sets `seconds`."""
        slower = self.arithmetic(multiply_adds) > self.memory(moved)
        return "arithmetic" if slower else "memory"


def _peaks(name: str, tflops: float, gb_per_s: float) -> GpuModel:
    return GpuModel(name, COMPUTE_CAPABILITIES[name], tflops, gb_per_s)


# From NVIDIA's data sheets and architecture white papers. These are upper bounds, so the peak with
# FP16 accumulation is used where it is higher. For Jetsons NVIDIA publishes sparse INT8 (Orin: 67,
# 76.8 and 170 TOPS of the GPU alone, in Super mode) and sparse FP4 (Thor: 2070, GB10: 1000); dense
# FP16 is a quarter and an eighth of that.
GPU_MODELS = (
    _peaks(PAPER_GPU, 130.5, 672),
    _peaks("T4", 65, 320),
    _peaks("A100", 312, 1555),
    _peaks("A10", 125, 600),
    _peaks("L4", 121, 300),
    _peaks("GeForce RTX 4090", 330.3, 1008),
    _peaks("GeForce RTX 5090", 419, 1792),
    _peaks("GB10", 125, 273),
    _peaks("Jetson Orin Nano", 16.75, 102),
    _peaks("Jetson Orin NX", 19.2, 102.4),
    _peaks("Jetson AGX Orin", 42.5, 204.8),
    _peaks("Jetson AGX Thor", 258.75, 273),
)


def known_gpu(name: str) -> GpuModel | None:
    """The model of a GPU by the driver's name for it, or of a Jetson board by its name.

    >>> known_gpu("NVIDIA Jetson AGX Orin Developer Kit").gb_per_s
    204.8
    """
    bare = _without_brands(name)
    for gpu in GPU_MODELS:
        board = gpu.name.startswith("Jetson") and bare.startswith(f"{gpu.name} ")
        if board or bare == _without_brands(gpu.name):
            return gpu
    return None


def models_of(sms: Iterable[int]) -> tuple[GpuModel, ...]:
    """The models with one of these compute capabilities, or all models if there is none."""
    wanted = set(sms)
    return tuple(gpu for gpu in GPU_MODELS if gpu.sm in wanted) or GPU_MODELS


def _without_brands(name: str) -> str:
    return " ".join(word for word in name.split() if word not in ("NVIDIA", "Tesla", "GeForce"))

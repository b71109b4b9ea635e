"""The paper's recipe, every constant in one table; each is a field, and most are flags."""

from dataclasses import dataclass
from enum import Enum

from mrcfa.errors import InvalidValue


class Precision(str, Enum):
    """What products are computed in; weights and losses stay FP32."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. Sections are those of the MRCFA paper (ECCV 2022) unless named."""

    iterations: int = 160_000
    """4.1."""
    batch: int = 8
    """Clips for each iteration, over all processes; 4.1."""
    learning_rate: float = 6e-5
    """Of the backbone; SegFormer, 4.1."""
    head_factor: float = 10.0
    """Times the learning rate for all that is not the backbone; SegFormer, 4.1."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    """None on norms."""
    warmup: int = 1_500
    """Iterations of linear warm-up, from a millionth of the learning rate."""
    power: float = 1.0
    """Of the polynomial decay to 0 at the last iteration."""
    crop: tuple[int, int] = (480, 480)
    """4.1."""
    ratio: tuple[float, float] = (0.5, 2.0)
    """Frames are resized by a ratio from here before they are cropped; 4.1."""
    most_of_one_class: float = 0.75
    """A crop with more of one class is drawn again."""
    flip: float = 0.5
    brightness: float = 32.0
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: float = 18.0
    """In degrees of 180, as OpenCV counts them."""
    drop_path: float = 0.1
    """In the last block of MiT, growing linearly with depth; SegFormer, 4.1."""
    dropout: float = 0.1
    """Of whole channels of F, before every classifier."""
    single_weight: float = 0.5
    """Of the single-frame loss over all frames of the clip; equation 12."""
    precision: Precision = Precision.FP32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.batch < 1:
            raise InvalidValue(
                f"{self.iterations} iterations of batch {self.batch} train nothing; use 1 or more"
            )
        if not self.learning_rate > 0:
            raise InvalidValue(f"the learning rate is {self.learning_rate:g}; it must be above 0")
        if min(self.crop) < 64 or any(side % 32 for side in self.crop):
            height, width = self.crop
            raise InvalidValue(
                f"a crop of {height}x{width} does not fit; use multiples of 32 from 64"
            )

    def learning_rate_at(self, iteration: int) -> float:
        """Warm-up, then polynomial decay: the factor of every group's own rate."""
        share = (1 - iteration / self.iterations) ** self.power
        warm = min(self.warmup, self.iterations)
        if iteration < warm:
            return share * (1e-6 + (1 - 1e-6) * iteration / warm)
        return share

"""The paper's recipe: all constants of training in one table."""

from dataclasses import dataclass
from enum import Enum

from mrcfa.errors import InvalidValue


class Precision(str, Enum):
    """Number format of matrix products in training; weights and losses stay FP32."""

    FP32 = "fp32"
    BF16 = "bf16"


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of training; section numbers are of the MRCFA paper unless named."""

    iterations: int = 160_000
    """Number of iterations (section 4.1)."""
    batch: int = 8
    """Clips per iteration, over all processes (section 4.1)."""
    learning_rate: float = 6e-5
    """Learning rate of the backbone (SegFormer, section 4.1)."""
    head_factor: float = 10.0
    """Factor of the learning rate for everything except the backbone (SegFormer, section 4.1)."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    """Weight decay of all parameters except those of norms."""
    warmup: int = 1_500
    """Iterations of linear warm-up, from a millionth of the learning rate."""
    power: float = 1.0
    """Power of the polynomial decay to 0 at the last iteration."""
    crop: tuple[int, int] = (480, 480)
    """Height and width of a training crop (section 4.1)."""
    ratio: tuple[float, float] = (0.5, 2.0)
    """Range of the random factor by which frames are resized before cropping (section 4.1)."""
    most_of_one_class: float = 0.75
    """Largest share of one class in a crop; otherwise another crop is drawn."""
    flip: float = 0.5
    brightness: float = 32.0
    contrast: tuple[float, float] = (0.5, 1.5)
    saturation: tuple[float, float] = (0.5, 1.5)
    hue: float = 18.0
    """Largest change of hue, in OpenCV's units of 2 degrees."""
    drop_path: float = 0.1
    """Drop path of MiT's last block; it grows linearly with depth (SegFormer, section 4.1)."""
    dropout: float = 0.1
    """Dropout of whole channels of F before every classifier."""
    single_weight: float = 0.5
    """Weight of the single-frame loss over all frames of the clip (equation 12)."""
    precision: Precision = Precision.FP32
    seed: int = 0

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.batch < 1:
            raise InvalidValue(
                f"{self.iterations} iterations of batch {self.batch} train nothing; use at least 1"
            )
        if not self.learning_rate > 0:
            raise InvalidValue(f"the learning rate is {self.learning_rate:g}; it must be above 0")
        if min(self.crop) < 64 or any(side % 32 for side in self.crop):
            height, width = self.crop
            raise InvalidValue(
                f"a crop of {height}x{width} does not fit; use multiples of 32 from 64"
            )

    def learning_rate_at(self, iteration: int) -> float:
        """The factor of every learning rate: linear warm-up times polynomial decay."""
        share = (1 - iteration / self.iterations) ** self.power
        warm = min(self.warmup, self.iterations)
        if iteration < warm:
            return share * (1e-6 + (1 - 1e-6) * iteration / warm)
        return share

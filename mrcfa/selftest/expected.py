"""The built-in clip and the reference model's masks of it (`expected.npz`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from mrcfa.bounds import EXPECTED_BYTES, EXPECTED_FRAMES
from mrcfa.bundle import EXPECTED, Bundle
from mrcfa.bundle.manifest import Limits
from mrcfa.bundle.parity import Parity
from mrcfa.data.synthetic import built_in_clip
from mrcfa.errors import Damaged
from mrcfa.selftest.line import REPORT, Fault, Found

Masks = NDArray[np.uint8]
WARM_UP = 4
"""The first frames, which no time per frame counts: TensorRT sets itself up in the first, and CUDA
graphs are recorded in the others."""


@dataclass(frozen=True)
class Expected:
    frames: NDArray[np.uint8]
    """The clip, T frames in the bundle's format."""
    compared: NDArray[np.int64]
    """Numbers (N) of the frames that have a mask: all frames, or a few if frames are large."""
    masks: Masks
    """Masks of those frames, (N, h, w)."""

    @classmethod
    def of(cls, bundle: Bundle) -> "Expected":
        """Read a bundle's masks, and generate the clip, which is not part of a bundle."""
        height, width = bundle.manifest.frame
        path = bundle.file(EXPECTED)
        try:
            with np.load(path, allow_pickle=False) as content:
                if sum(part.file_size for part in content.zip.infolist()) > EXPECTED_BYTES:
                    raise ValueError(f"it unpacks to more than {EXPECTED_BYTES} bytes")
                masks = content["masks"]
                numbers = content["frames"] if "frames" in content else np.arange(len(masks))
        except (OSError, ValueError, KeyError, AttributeError, BadZipFile) as error:
            raise Damaged(f"{path} cannot be read ({error}); export the bundle again") from None
        if masks.dtype != np.uint8 or masks.shape[1:] != (height, width) or not len(masks):
            raise Damaged(
                f"{path} holds {masks.dtype} {masks.shape} instead of masks of "
                f"{height}x{width}; export the bundle again"
            )
        if numbers.shape != masks.shape[:1]:
            raise Damaged(
                f"{path} has {len(masks)} masks of {numbers.size} frames; export the bundle again"
            )
        if numbers.dtype.kind != "i" or not 0 <= numbers.min() <= numbers.max() < EXPECTED_FRAMES:
            raise Damaged(
                f"{path} has masks of frames that are not numbered below {EXPECTED_FRAMES}; "
                "export the bundle again"
            )
        clip = built_in_clip(int(numbers[-1]) + 1, (height, width), bundle.manifest.input)
        return cls(clip, numbers, masks)

    def agreement(self, masks: Masks, limits: Limits, seconds: Sequence[float] = ()) -> Found:
        """Agreement of the masks with the reference's; raises Fault if it misses the limit.

        `seconds` are the times of the frames, if they were measured one by one.
        """
        parity = Parity(limits)
        for mask, wanted in zip(masks[self.compared], self.masks, strict=True):
            parity.add_masks(mask, wanted)
        (check,) = parity.checks
        fewest = min(parity.agreements)
        worst = int(self.compared[parity.agreements.index(fewest)])
        facts: dict[str, Any] = {
            **check.to_json(),
            "frames": len(self.masks),
            "worst_frame": worst,
            "worst_agreement": fewest,
        }
        if timed := seconds[WARM_UP:]:
            facts["ms_per_frame"] = fmean(timed) * 1e3
        words = (
            f"{check.value:.3%} of pixels have the reference's class (limit {check.threshold:.1%}) "
            f"in {len(self.masks)} frames"
        )
        if not check.passed:
            raise Fault(
                f"{words}, the fewest in frame {worst} ({fewest:.1%})",
                "the masks are wrong: export and build the bundle again; if that does not help, "
                f"{REPORT}",
                **facts,
            )
        if timed:
            words += f", {facts['ms_per_frame']:.0f} ms per frame"
        return Found(words, facts)


def same(masks: Masks, before: Masks, words: str, remedy: str) -> Found:
    """Compare masks with earlier ones of the same frames; raises Fault beyond rounding errors."""
    share = float((masks == before).mean())
    facts = {"same_as_before": share, "frames": len(masks)}
    if share < _SAME:
        raise Fault(f"{words}: false for {1 - share:.2%} of the pixels", remedy, **facts)
    return Found(words, facts)


_SAME = 0.9999

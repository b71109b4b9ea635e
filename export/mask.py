"""The mask of a decoder for GPUs: no tensor of classes × pixels, whatever the frame's size."""

import torch
from torch import Tensor, nn

from mrcfa.export.interpolation import Size, Taps, resizing
from mrcfa.export.precision import Wide

STRIP = 1 << 25
"""Scores of a strip of the mask. A compiler keeps them on the chip; ONNX Runtime writes them."""


class GatheredMask(Wide, nn.Module):
    """(B, classes, H/4, W/4) logits -> (B, h, w) mask: what `FullSizeMask` computes.

    Interpolation is gathers and sums, and the argmax the lowest class whose score is the largest:
    with both a compiler makes one kernel that writes nothing but classes (docs/algebra.md, lemmas
    13 and 14).
    """

    classes: Tensor

    def __init__(self, classes: int, grid: Size, size: Size, frame: Size) -> None:
        super().__init__()
        rows = resizing((grid[0], size[0], frame[0]))
        strips = -(-classes * frame[0] * frame[1] // STRIP)
        self.rows = nn.ModuleList(Taps(part, axis=2) for part in rows.chunk(strips))
        self.columns = Taps(resizing((grid[1], size[1], frame[1])), axis=3)
        self.register_buffer("classes", torch.arange(classes).float().view(1, -1, 1, 1))

    def forward(self, logits: Tensor) -> Tensor:
        strips = [self._leading(self._scores(logits, rows)) for rows in self.rows]
        whole = torch.cat(strips, dim=1) if len(strips) > 1 else strips[0]
        return whole.to(torch.uint8)  # not before: TensorRT has uint8 at a graph's ends alone

    def _scores(self, logits: Tensor, rows: nn.Module) -> Tensor:
        """Interpolated scores of a strip.

        Rows are gathered before and added after the columns: with rows added first, a compiler
        writes them out, in FP32, as part of the kernel that made the logits.
        """
        assert isinstance(rows, Taps)
        parts = [self.columns(each) * weights for each, weights in rows.gathered(logits)]
        return sum(parts[1:], start=parts[0])

    def _leading(self, scores: Tensor) -> Tensor:
        """The argmax over classes. Scores that are not numbers lead to the last class."""
        leads = scores >= scores.amax(dim=1, keepdim=True)
        leaders = torch.where(leads, self.classes, self.classes[:, -1:])
        return leaders.amin(dim=1).half()

"""The mask of a decoder for GPUs, computed without any tensor of classes × pixels."""

import torch
from torch import Tensor, nn

from mrcfa.export.interpolation import Size, Taps, resizing
from mrcfa.export.precision import Wide

STRIP = 1 << 25
"""The largest number of scores in a strip of the mask. ONNX Runtime holds them in memory."""


class GatheredMask(Wide, nn.Module):
    """(B, classes, H/4, W/4) logits -> (B, h, w) mask, equal to that of `FullSizeMask`.

    Interpolation is gathers and sums, and the argmax is the least class with the largest score. So
    a compiler makes one kernel that writes only classes (docs/algebra.md, lemmas 13 and 14).
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
        strips = [self._leading(self._scores(logits, rows)).to(logits.dtype) for rows in self.rows]
        whole = torch.cat(strips, dim=1) if len(strips) > 1 else strips[0]
        return whole.to(torch.uint8)  # last, because TensorRT allows uint8 only at a graph's ends

    def _scores(self, logits: Tensor, rows: nn.Module) -> Tensor:
        """Interpolated scores of a strip.

        Rows are gathered before the columns and added after them. If they were added first, the
        kernel that computes the logits would write the sums to memory, in FP32.
        """
        assert isinstance(rows, Taps)
        parts = [self.columns(inputs) * weights for inputs, weights in rows.gathered(logits)]
        return sum(parts[1:], start=parts[0])

    def _leading(self, scores: Tensor) -> Tensor:
        """The argmax over classes; the last class where no score is a number."""
        leads = scores >= scores.amax(dim=1, keepdim=True)
        leaders = torch.where(leads, self.classes, self.classes[:, -1:])
        return leaders.amin(dim=1)

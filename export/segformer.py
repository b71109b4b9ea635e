"""SegFormer's two graphs. It has no memory: the decoder only makes a mask of class scores."""

from torch import Tensor, nn

from mrcfa.export.decoder import LAST_FRAME
from mrcfa.export.encoder import FrameEncoder
from mrcfa.export.folds import affine, conv_of
from mrcfa.model.segformer import SegFormer


class SegFormerEncoder(FrameEncoder):
    """uint8 (B, h, w, 3) -> base (B, classes, H/4, W/4), the frame's own class scores."""

    def __init__(self, model: SegFormer) -> None:
        super().__init__(model, on_full_feature=True)
        self.base = conv_of(affine(model.linear_pred))

    def forward(self, image: Tensor) -> Tensor:
        feature, _ = self.fusion(self.encoder(self.prepare(image)))
        scores: Tensor = self.base(feature)
        return scores


class SegFormerDecoder(nn.Module):
    """(base, frame) -> (frame_out, logits[, mask])."""

    def __init__(self, model: SegFormer, answer: "Answer") -> None:
        super().__init__()
        self.answer = answer

    def forward(self, base: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        return (frame + 1).clamp(max=LAST_FRAME), *self.answer(base)


class Answer(nn.Module):
    """Logits (B, classes, H/4, W/4) -> logits, or logits and mask.

    With a mask, the classes of the logits are on the axis where the mask reads them.
    """

    def __init__(self, mask: nn.Module | None, classes_last: bool) -> None:
        super().__init__()
        self.mask, self.classes_last = mask, classes_last

    def forward(self, logits: Tensor) -> list[Tensor]:
        if self.mask is None:
            return [logits]
        logits = logits.permute(0, 2, 3, 1) if self.classes_last else logits
        return [logits, self.mask(logits)]

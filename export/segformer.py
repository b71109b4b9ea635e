"""SegFormer's two graphs. It has no memory: the decoder only turns class scores into an answer."""

from torch import Tensor, nn

from export.decoder import LAST_FRAME
from export.encoder import FoldedFusion, conv_of, with_channels_first
from export.folds import affine, fold_fusion
from mrcfa.manifest import Output
from mrcfa.model.frames import FullSizeMask, Normalise
from mrcfa.model.segformer import SegFormer


class SegFormerEncoder(nn.Module):
    """uint8 (1, h, w, 3) -> base (1, classes, H/4, W/4), the frame's own class scores."""

    def __init__(self, model: SegFormer) -> None:
        super().__init__()
        self.prepare = Normalise(model.config.size)
        self.encoder = with_channels_first(model.encoder)
        self.fusion = FoldedFusion(fold_fusion(model.fusion))
        self.base = conv_of(affine(model.linear_pred))

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.base(self.fusion(self.encoder(self.prepare(image))))
        return scores


class SegFormerDecoder(nn.Module):
    """(base, frame) -> (frame_out, logits[, mask])."""

    def __init__(self, model: SegFormer, answer: "Answer") -> None:
        super().__init__()
        self.answer = answer

    def forward(self, base: Tensor, frame: Tensor) -> tuple[Tensor, ...]:
        return (frame + 1).clamp(max=LAST_FRAME), *self.answer(base)


class Answer(nn.Module):
    """Logits (1, classes, H/4, W/4) -> what the decoder answers: them, or them and their mask."""

    def __init__(self, size: tuple[int, int], frame: tuple[int, int], output: Output) -> None:
        super().__init__()
        self.mask = FullSizeMask(size, frame) if output is Output.MASK else None

    def forward(self, logits: Tensor) -> list[Tensor]:
        return [logits] if self.mask is None else [logits, self.mask(logits)]

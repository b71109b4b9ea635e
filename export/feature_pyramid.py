"""The feature pyramid's two graphs: tensors as MRCFA's, but for values of 256 channels.

A ReLU lies between the values and the classifier, which therefore cannot be folded into them
(docs/algebra.md, lemma 4); it is applied once, to the sum over the references.
"""

import torch
from torch import Tensor, nn

from mrcfa.export.decoder import STM, Recall, for_references, summed_by_stream
from mrcfa.export.encoder import EncoderGraph, TokenConv
from mrcfa.export.folds import Affine, affine, conv_of
from mrcfa.export.precision import widely
from mrcfa.export.segformer import Answer
from mrcfa.model.feature_pyramid import FeaturePyramid
from mrcfa.model.frames import resize


class PyramidEncoder(EncoderGraph):
    """uint8 (B, h, w, 3) -> base, queries (finest scale first), divided by √C, and entry."""

    def __init__(self, model: FeaturePyramid) -> None:
        super().__init__(model)
        self.value = TokenConv(affine(model.value), rows=model.config.tokens)


class PyramidDecoder(nn.Module):
    """(base, queries…, entry, memory, frame) -> (memory_out, frame_out, logits[, mask])."""

    def __init__(self, model: FeaturePyramid, answer: Answer) -> None:
        super().__init__()
        config = self.config = model.config
        self.recall, self.stm, self.answer = Recall(config.references), STM(config), answer
        self.merge = nn.ModuleDict({name: _copied(conv) for name, conv in model.merge.items()})
        classify = affine(model.classify).weight / len(config.references)
        # The bias is in `base` already.
        self.classify = conv_of(Affine(classify, classify.new_zeros(len(classify))))

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        *queries, entry, memory, frame = inputs
        asked = dict(zip(reversed(self.config.strides), queries, strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = self.stm(asked[32], references)
        merged = self._merged(asked, dict(zip(self.config.strides, keys, strict=True)), values)
        retrieved = self.classify(summed_by_stream(merged, len(base)))
        scores = base + resize(retrieved, base.shape[2:])
        return memory_out, frame_out, *self.answer(resize(scores, self.config.grid(4)))

    def _merged(self, asked: dict[int, Tensor], keys: dict[int, Tensor], values: Tensor) -> Tensor:
        """What each reference says, merged coarse to fine: (R, 256, h, w)."""
        merged: Tensor | None = None
        for stride, query in reversed(asked.items()):
            grid = self.config.grid(stride)
            scores = for_references(query, len(values)) @ keys[stride].transpose(1, 2)
            weights = widely(lambda x: x.softmax(dim=2), scores)
            feature = (weights @ values).transpose(1, 2).unflatten(2, grid)
            if merged is None:
                merged = feature
            else:
                merged = torch.relu(self.merge[str(stride)](resize(merged, grid) + feature))
        assert merged is not None
        return merged


def _copied(conv: nn.Module) -> nn.Conv2d:
    """A depthwise conv with its parameters in float64, to be rounded once."""
    weight, bias = affine(conv)
    copy = nn.Conv2d(len(weight), len(weight), 3, padding=1, groups=len(weight))
    copy.weight, copy.bias = nn.Parameter(weight), nn.Parameter(bias)
    return copy

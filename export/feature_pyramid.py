"""The feature pyramid's two graphs: the tensors are MRCFA's, except that values have 256 channels.

A ReLU lies between values and classifier, so the classifier cannot be folded into the values
(docs/algebra.md, lemma 4). It is applied once, to the sum over the references.
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

Scales = dict[int, Tensor]
"""Tensors by the stride of their scale."""


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
        self.recall, self.stm = Recall(config.references), STM(config, config.kept)
        self.answer = answer
        self.merge = nn.ModuleDict({name: _copied(conv) for name, conv in model.merge.items()})
        classify = affine(model.classify).weight / len(config.references)
        # The bias is in `base` already.
        self.classify = conv_of(Affine(classify, classify.new_zeros(len(classify))))

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        entry, memory, frame = inputs[-3:]
        queries = dict(zip(reversed(self.config.strides), inputs[:-3], strict=True))
        references, memory_out, frame_out = self.recall(memory, entry, frame)
        *keys, values = self.stm(queries[32], references)
        merged = self._merged(queries, dict(zip(self.config.strides, keys, strict=True)), values)
        retrieved = self.classify(summed_by_stream(merged, len(base)))
        scores = base + resize(retrieved, base.shape[2:])
        return memory_out, frame_out, *self.answer(resize(scores, self.config.grid(4)))

    def _merged(self, queries: Scales, keys: Scales, values: Tensor) -> Tensor:
        """The feature retrieved from each reference, merged coarse to fine: (R, 256, h, w)."""
        merged: Tensor | None = None
        for stride, query in reversed(queries.items()):
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
    """A copy of a depthwise conv with float64 parameters, which are rounded once later."""
    weight, bias = affine(conv)
    copy = nn.Conv2d(len(weight), len(weight), 3, padding=1, groups=len(weight))
    copy.weight, copy.bias = nn.Parameter(weight), nn.Parameter(bias)
    return copy

"""The stateful decoder graph: a frame's queries and the memory in, mask and memory out. For export.

Kept tokens are channels here, (R, S, h, w), where the reference model has them on the batch axis:
the weights are shared by all tokens, so each conv of SAR and MAA is one grouped conv over them, and
its GroupNorm(1) is a GroupNorm with one group per token. Their order does not matter, because the
softmax and the product that follow reduce over them.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.folds import Affine, affine, fold_affinity_scale
from export.layout import Layout
from export.precision import set_precision, widely
from export.select_tokens import select_tokens
from mrcfa.affinity import Refinement
from mrcfa.model import MRCFA
from mrcfa.schedule import memory_table

LAST_FRAME = 2**30
"""The frame number saturates here, years before int32 would overflow."""


class DecoderGraph(nn.Module):
    """(base, queries…, entry, memory, frame) -> (mask or logits, memory_out, frame_out)."""

    def __init__(
        self, model: MRCFA, layout: Layout, frame: tuple[int, int], output: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        config = model.config
        self.layout, self.frame, self.output = layout, frame, output
        self.keep = layout.selection.keep
        self.sar, self.maa = nn.ModuleDict(), nn.ModuleDict()
        for stride in model.refinement.strides:
            name = str(stride)
            if name in model.refinement.sar:
                block = model.refinement.sar[name]
                self.sar[name] = TokenRefinement(block, self.keep, config.width(stride))
            if name in model.refinement.maa:
                self.maa[name] = TokenRefinement(model.refinement.maa[name], self.keep, 1)
        self.register_buffer("schedule", torch.tensor(memory_table(config.references)))
        self.register_buffer("rows", torch.arange(len(config.references)).unsqueeze(1))
        set_precision(self, dtype)

    def forward(self, base: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *queries, entry, memory, frame = inputs
        by_stride = dict(zip(reversed(self.layout.strides), queries, strict=True))
        history = torch.cat([memory, entry])
        moment = frame.clamp(max=self.layout.depth).long()
        references = history[self.schedule[moment][0]]

        *keys, values = self._select(by_stride[32], references)
        weights = self._weights(by_stride, dict(zip(self.layout.strides, keys, strict=True)))
        # Σ over references and tokens in one product: (classes, R·S) × (R·S, h·w).
        flat = weights.flatten(0, 1).flatten(1)
        logits = base + (values.flatten(0, 1).t() @ flat).view_as(base)
        return self._answer(logits), history[1:], (frame + 1).clamp(max=LAST_FRAME)

    def _select(self, query: Tensor, references: Tensor) -> list[Tensor]:
        """STM: (R, N, D) entries -> the kept tokens' keys of every scale and their values."""
        layout = self.layout
        parts = references.split(layout.columns, dim=2)
        coarse = parts[0].reshape(len(parts[0]), layout.tokens(32), -1)
        selected = select_tokens(query @ coarse.transpose(1, 2), layout.selection).long()
        if layout.selection.factor == 1:
            return list(references[self.rows, selected].split(layout.columns, dim=2))
        # Bilinear upsampling acts on positions, the product with the queries on channels, so
        # upsampling the keys upsamples the affinity along its key axes.
        grid = coarse.transpose(1, 2).unflatten(2, layout.grid(32))
        finer = F.interpolate(
            grid, scale_factor=layout.selection.factor, mode="bilinear", align_corners=False
        )
        rest = torch.cat([finer.flatten(2).transpose(1, 2), *parts[1:]], dim=2)
        widths = (finer.shape[1], *layout.columns[1:])
        return list(rest[self.rows, selected].split(widths, dim=2))

    def _weights(self, queries: dict[int, Tensor], keys: dict[int, Tensor]) -> Tensor:
        """SAR, MAA and the softmax over each reference's tokens: (R, S, h, w)."""
        strides = self.layout.config.strides if self.layout.config.maa else self.layout.strides[-1:]
        refined: Tensor | None = None
        for stride in strides:
            affinity = keys[stride] @ queries[stride].transpose(1, 2)
            maps = affinity.unflatten(2, self.layout.grid(stride))
            name = str(stride)
            if name in self.sar:
                maps = self.sar[name](maps)
            else:
                maps = maps * self.layout.config.width(stride) ** 0.5
            if refined is None:
                refined = maps
                continue
            coarser = _resize(refined, self.layout.grid(stride), align_corners=True)
            if coarser.shape != maps.shape:  # without SAR a raw map joins every channel
                maps = maps.repeat_interleave(coarser.shape[1] // maps.shape[1], dim=1)
            refined = self.maa[name](coarser + maps)
        assert refined is not None
        refined = _resize(
            refined, self.layout.grid(self.layout.config.output_stride), align_corners=True
        )
        return widely(lambda x: x.softmax(dim=1), refined)

    def _answer(self, logits: Tensor) -> Tensor:
        config = self.layout.config
        logits = _resize(logits, self.layout.grid(4))
        if self.output == "logits":
            return logits
        full = _resize(_resize(logits, config.size), self.frame)
        return full.argmax(dim=1).to(torch.uint8)


class TokenRefinement(nn.Module):
    """A `Refinement` block over tokens on the channel axis: (R, S·in, h, w) -> (R, S·out, h, w)."""

    def __init__(self, block: nn.Module, tokens: int, channels: int) -> None:
        super().__init__()
        assert isinstance(block, Refinement)
        self.tokens = tokens
        self.convs, self.scales, self.shifts = nn.ModuleList(), nn.ParameterList(), nn.ParameterList()
        for conv, norm in zip(list(block)[0::3], list(block)[1::3], strict=True):
            assert isinstance(conv, nn.Conv2d)
            assert isinstance(norm, nn.GroupNorm)
            self.convs.append(_over_tokens(fold_affinity_scale(affine(conv), channels), tokens))
            channels = 1
            self.eps = norm.eps
            self.scales.append(nn.Parameter(norm.weight.detach().repeat(tokens)))
            self.shifts.append(nn.Parameter(norm.bias.detach().repeat(tokens)))

    def forward(self, maps: Tensor) -> Tensor:
        for conv, scale, shift in zip(self.convs, self.scales, self.shifts, strict=True):
            normed = widely(
                lambda x, scale=scale, shift=shift: F.group_norm(
                    x, self.tokens, scale.float(), shift.float(), self.eps
                ),
                conv(maps),
            )
            maps = F.relu(normed)
        return maps


def _over_tokens(folded: Affine, tokens: int) -> nn.Conv2d:
    """The same conv for every token: a grouped conv with the weights repeated."""
    outputs, inputs, kernel, _ = folded.weight.shape
    conv = nn.Conv2d(
        tokens * inputs, tokens * outputs, kernel, padding=kernel // 2, groups=tokens
    )
    conv.weight.data = folded.weight.repeat(tokens, 1, 1, 1)
    conv.bias = nn.Parameter(folded.bias.repeat(tokens))
    return conv


def _resize(maps: Tensor, size: tuple[int, int], align_corners: bool = False) -> Tensor:
    if tuple(maps.shape[2:]) == size:
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=align_corners)

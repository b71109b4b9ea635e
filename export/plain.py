"""The plain arrangement, for GPUs and every runtime but ONNX Runtime on CPUs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mrcfa.export.arrangement import Arrangement
from mrcfa.export.decoder import STM, DecoderGraph, GroupDecoder
from mrcfa.export.encoder import FrameEncoder, GatheredFusion
from mrcfa.export.folds import fold_fusion
from mrcfa.export.grouping import DecoderMemory, Grouping
from mrcfa.export.interpolation import Size
from mrcfa.export.mask import GatheredMask
from mrcfa.export.pixels import gathered_pixels
from mrcfa.export.refinement import (
    MAA,
    SAR,
    GroupedLayer,
    MapNorm,
    MapsWithMaximum,
    Step,
    upsampled,
)
from mrcfa.export.repeated import Spec
from mrcfa.export.retrieval import Retrieval, RunningSoftmax, Scores
from mrcfa.export.stages import with_channels_last
from mrcfa.export.tensors import entry_columns
from mrcfa.model.config import Config
from mrcfa.model.frames import Normalise, resize
from mrcfa.model.input_format import InputFormat
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer


class Plain(Arrangement):
    name = "plain"

    def pixels(self, frame: Size, size: Size, form: InputFormat) -> Normalise:
        return gathered_pixels(frame, size, form)

    def adapt(self, encoder: FrameEncoder, model: SegFormer) -> FrameEncoder:
        """Parts in the forms that compilers for GPUs fuse: channels last, gathers for resizes."""
        encoder.encoder = with_channels_last(model.encoder)
        grids = [model.config.grid(stride) for stride in (4, 8, 16, 32)]
        encoder.fusion = GatheredFusion(fold_fusion(model.fusion), encoder.on_full_feature, grids)
        return encoder

    def mrcfa_decoder(
        self, model: MRCFA, grouping: Grouping, mask: nn.Module | None
    ) -> DecoderGraph:
        config = model.config
        stm, group = STM(config, config.kept), PlainGroupDecoder(model, grouping.tokens)
        scores = Scores(config.grid(4))
        return DecoderGraph(config, grouping, stm, group, RunningSoftmax, scores, mask)

    def mask(self, config: Config, frame: Size) -> nn.Module:
        return GatheredMask(config.classes, config.grid(4), config.size, frame)

    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory:
        """The memory that TensorRT-RTX takes: a conv's maps before and after it, and coarser ones.

        The fixed part is queries before and after SAR's first conv, sums, and gathered tokens.
        """
        positions = config.tokens_at(config.output_stride)
        width = config.width(config.strides[-1])
        gathered = len(config.references) * config.tokens * sum(entry_columns(config))
        sums = config.classes * (itemsize + 8)
        return DecoderMemory(
            config,
            fixed=streams * (positions * (2 * width * itemsize + sums) + gathered * itemsize),
            per_map=streams * positions * itemsize * (4 * config.affinity_channels + 1) // 2,
            itemsize=itemsize,
        )


class PlainGroupDecoder(GroupDecoder):
    """`GroupDecoder` with a token's C maps side by side, (R, s·C, h, w)."""

    scope = "Group"

    def __init__(self, model: MRCFA, tokens: int) -> None:
        super().__init__(model, tokens, Retrieval(model.config.kept))

    def outputs(self, *inputs: Tensor) -> list[Spec]:
        *_, values = inputs
        positions = self.config.tokens_at(self.config.output_stride)
        channels = (1, 1, self.config.classes)
        return [Spec((len(values), count, positions), torch.float32) for count in channels]

    def new_sar(self, steps: Sequence[Step], tokens: int, grid: Size) -> SAR:
        first, *rest = steps
        layers = (GroupedLayer(step, tokens) for step in rest)
        return SAR(first.conv.weight, MapNorm(first), *layers)

    def new_maa(self, steps: Sequence[Step], tokens: int, grid: Size) -> MAA:
        return MAA(steps, tokens, for_softmax=grid == self.finest)

    def joined(self, affinities: Sequence[Tensor]) -> Tensor:
        if len(affinities) == 1:
            return affinities[0]
        return torch.stack(list(affinities), dim=2).flatten(1, 2)

    def aggregated(self, maa: nn.Module, coarser: Tensor, maps: Tensor) -> Tensor | MapsWithMaximum:
        coarser = upsampled(coarser)
        repeats = coarser.shape[1] // maps.shape[1]
        if repeats > 1:  # without SAR one raw map is added to every channel
            maps = maps.repeat_interleave(repeats, dim=1)
        refined: Tensor | MapsWithMaximum = maa(coarser + maps)
        return refined

    def at_finest(self, refined: Tensor | MapsWithMaximum) -> MapsWithMaximum:
        if isinstance(refined, MapsWithMaximum):
            return refined
        return MapsWithMaximum.of(resize(refined, self.finest, align_corners=True))


PLAIN = Plain()

"""The plain arrangement, for GPUs: `export.encoder` and `export.decoder` as they are."""

from torch import nn

from mrcfa.bundle.manifest import Output
from mrcfa.export.arrangement import Arrangement, Size
from mrcfa.export.decoder import DecoderGraph
from mrcfa.export.encoder import EncoderGraph, GatheredFusion
from mrcfa.export.folds import fold_fusion
from mrcfa.export.groups import DecoderMemory, Groups
from mrcfa.export.interpolation import GatheredPixels
from mrcfa.export.segformer import SegFormerEncoder
from mrcfa.export.stages import with_channels_last
from mrcfa.export.tensors import entry_columns
from mrcfa.model.config import Config
from mrcfa.model.mrcfa import MRCFA
from mrcfa.model.segformer import SegFormer


class Plain(Arrangement):
    name = "plain"

    def encoder(self, model: MRCFA, frame: Size) -> nn.Module:
        return fusible(EncoderGraph(model), model, frame)

    def decoder(
        self, model: MRCFA, frame: Size, output: Output, groups: Groups | None = None
    ) -> nn.Module:
        return DecoderGraph(model, frame, output, groups or Groups(False, model.config.kept))

    def memory(self, config: Config, itemsize: int, streams: int) -> DecoderMemory:
        """As TensorRT-RTX takes it: a conv's maps before and after it, and coarser ones.

        Beside them queries before and after SAR's first conv, sums, and what was gathered.
        """
        positions = config.tokens_at(config.output_stride)
        width = config.width(config.strides[-1])
        gathered = len(config.references) * config.tokens * sum(entry_columns(config))
        sums = config.classes * (itemsize + 8)
        return DecoderMemory(
            config,
            fixed=streams * (positions * (2 * width * itemsize + sums) + gathered * itemsize),
            each=streams * positions * itemsize * (4 * config.affinity_channels + 1) // 2,
            itemsize=itemsize,
        )


def fusible(
    graph: EncoderGraph | SegFormerEncoder, model: SegFormer, frame: Size
) -> EncoderGraph | SegFormerEncoder:
    """An encoder graph whose parts have the forms that compilers for GPUs fuse."""
    graph.prepare = GatheredPixels(frame, model.config.size)
    graph.encoder = with_channels_last(model.encoder)
    grids = [model.config.grid(stride) for stride in (4, 8, 16, 32)]
    graph.fusion = GatheredFusion(fold_fusion(model.fusion), graph.on_full_feature, grids)
    return graph


PLAIN = Plain()

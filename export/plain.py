"""The plain arrangement, for GPUs: `export.encoder` and `export.decoder` as they are."""

from torch import nn

from export.arrangement import Arrangement, Size
from export.decoder import DecoderGraph
from export.encoder import EncoderGraph, GatheredFusion
from export.folds import fold_fusion
from export.stages import with_channels_last
from mrcfa.manifest import Output
from mrcfa.model.mrcfa import MRCFA


class Plain(Arrangement):
    name = "plain"

    def encoder(self, model: MRCFA) -> nn.Module:
        graph, config = EncoderGraph(model), model.config
        graph.encoder = with_channels_last(model.encoder)
        grids = [config.grid(stride) for stride in (4, 8, 16, 32)]
        folded = fold_fusion(model.fusion)
        graph.fusion = GatheredFusion(folded, graph.on_full_feature, grids)
        return graph

    def decoder(self, model: MRCFA, frame: Size, output: Output) -> nn.Module:
        return DecoderGraph(model, frame, output)


PLAIN = Plain()

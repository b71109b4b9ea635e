"""The plain arrangement, for GPUs: `export.encoder` and `export.decoder` as they are."""

from torch import nn

from export.arrangement import Arrangement, Size
from export.decoder import DecoderGraph
from export.encoder import EncoderGraph
from mrcfa.manifest import Output
from mrcfa.model.mrcfa import MRCFA


class Plain(Arrangement):
    name = "plain"

    def encoder(self, model: MRCFA) -> nn.Module:
        return EncoderGraph(model)

    def decoder(self, model: MRCFA, frame: Size, output: Output) -> nn.Module:
        return DecoderGraph(model, frame, output)


PLAIN = Plain()

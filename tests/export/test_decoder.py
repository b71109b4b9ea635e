"""The paper's switches through both graphs, as modules, against the reference model."""

import pytest
import torch

from export.decoder import DecoderGraph
from export.encoder import EncoderGraph
from export.layout import Layout
from mrcfa.backends.eager import network_input
from mrcfa.config import preset
from mrcfa.model import MRCFA

SWITCHES = [
    {"sar": False},
    {"maa": False},
    {"sar": False, "maa": False},
    {"scales": 1},
    {"scales": 2},
    {"scales": 4, "sar": False},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("backbone", ["b0", "b1"])
@torch.no_grad()
def test_a_frame_has_the_models_logits(backbone, switches, clip):
    config = preset("vspw", backbone, size=(96, 160), **switches)
    model, layout = MRCFA(config, seed=1), Layout(config)
    (image,) = clip(1, 96, 160)
    features = model.encode(network_input(image, config.size))
    references = [model.answer(features)] * len(config.references)
    expected = model.decode(model.ask(features), references)

    encoder = EncoderGraph(model, layout, torch.float32)
    decoder = DecoderGraph(model, layout, config.size, "logits", torch.float32)
    state = list(layout.decoder_inputs(torch.float32).values())[-2:]
    *_, logits = decoder(*encoder(torch.from_numpy(image)[None]), *state)
    span = expected.max() - expected.min()
    assert (logits - expected).abs().max() < 1e-5 * span

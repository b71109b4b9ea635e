"""The paper's switches through both arrangements, as modules, against the reference model."""

import pytest
import torch

from mrcfa.bundle.manifest import Output
from mrcfa.data.presets import preset
from mrcfa.export.ort_cpu.arrangement import ORT_CPU
from mrcfa.export.ort_cpu.retrieval import exponent_offset
from mrcfa.export.plain import PLAIN
from mrcfa.export.precision import in_fp16, in_fp32
from mrcfa.export.tensors import decoder_inputs
from mrcfa.model.frames import network_input
from mrcfa.model.mrcfa import MRCFA

ONE_BLOCK = (1, 1, 1, 1)
SWITCHES = [
    {},
    {"sar": False},
    {"maa": False},
    {"sar": False, "maa": False},
    {"scales": 1},
    {"scales": 2},
    {"scales": 4, "sar": False},
    {"kernels": ((3,), (3,), (5,))},
    {"kernels": ((3, 3, 3), (5,), (3, 5))},
    {"kernels": ((1,), (7, 1, 3), (3,)), "affinity_channels": 3},
    {"kernels": ((3, 3), (3,), (3,)), "affinity_channels": 1},
]


@pytest.mark.parametrize("arrangement", [PLAIN, ORT_CPU], ids=lambda each: each.name)
@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("backbone", ["b1", pytest.param("b0", marks=pytest.mark.thorough)])
@torch.no_grad()
def test_a_frame_has_the_models_logits(backbone, switches, arrangement, clip):
    config = preset("vspw", backbone, size=(96, 160), depths=ONE_BLOCK, **switches)
    model = MRCFA(config, seed=1)
    assert error(model, arrangement, clip(1, 96, 160)[0]) < 1e-5


def error(model, arrangement, image, rounded=in_fp32):
    """The largest error of a first frame's logits, as a share of their range."""
    config = model.config
    features = model.encode(network_input(image, config.size))
    references = [model.as_reference(features)] * len(config.references)
    expected = model.decode(model.as_target(features), references)
    encoder = rounded(arrangement.encoder(model, config.size))
    grouping = arrangement.memory(config, 4, 1).whole
    decoder = rounded(arrangement.decoder(model, config.size, Output.LOGITS, grouping))
    features = encoder(torch.from_numpy(image)[None])
    state = list(decoder_inputs(config, features[-1].dtype).values())[-2:]
    *_, logits = decoder(*features, *state)
    return (logits - expected).abs().max() / (expected.max() - expected.min())


@torch.no_grad()
def test_affinities_whose_exponentials_no_constant_keeps_in_range_have_a_maximum(clip):
    model = MRCFA(preset("vspw", "b0", size=(96, 160)))
    last = [part for part in model.refinement.modules() if isinstance(part, torch.nn.GroupNorm)][-1]
    torch.nn.init.constant_(last.weight, 100)
    assert exponent_offset(model) is None
    assert error(model, ORT_CPU, clip(1, 96, 160)[0]) < 1e-4  # exponents of hundreds, in FP32


@torch.no_grad()
def test_fp16_survives_affinities_that_would_overflow_unscaled(clip):
    """In PyTorch, whose FP16 products overflow where those of a GPU do."""
    model = MRCFA(preset("vspw", "b1", size=(96, 160), depths=ONE_BLOCK), seed=1)
    for weight in (*model.query.parameters(), *model.key.parameters()):
        weight.mul_(100)
    image = clip(1, 96, 160)[0]
    features = model.encode(network_input(image, (96, 160)))
    affinity = model.as_target(features).queries[32] @ model.as_reference(features).keys[
        32
    ].transpose(1, 2)
    assert affinity.abs().max() > torch.finfo(torch.float16).max
    assert error(model, PLAIN, image, in_fp16) < 5e-3


def test_rounding_leaves_norms_and_pixels_in_fp32_and_everything_else_in_fp16():
    model = MRCFA(preset("vspw", "b0", size=(96, 160)))
    graph = in_fp16(PLAIN.encoder(model, (108, 192)))
    norms = [part for part in graph.modules() if isinstance(part, torch.nn.LayerNorm)]
    assert {norm.weight.dtype for norm in norms} == {torch.float32}
    inside = {id(weight) for norm in norms for weight in norm.parameters()}
    others = {weight.dtype for weight in graph.parameters() if id(weight) not in inside}
    assert others == {torch.float16}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert {constant.dtype for constant in graph.prepare.buffers()} == {torch.float32, torch.int64}

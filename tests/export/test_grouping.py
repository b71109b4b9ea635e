"""Tokens in groups: the same logits, less memory, and groups that a budget chooses."""

from itertools import pairwise

import pytest
import torch
from naming import naming

from mrcfa.bundle.manifest import Output
from mrcfa.data.presets import preset
from mrcfa.errors import InvalidValue
from mrcfa.export.exporter import ExportOptions, check_options
from mrcfa.export.grouping import Grouping
from mrcfa.export.ort_cpu.arrangement import ORT_CPU
from mrcfa.export.plain import PLAIN
from mrcfa.export.precision import in_fp16, in_fp32
from mrcfa.export.variants import VARIANTS
from mrcfa.model import mrcfa as reference_model
from mrcfa.model.affinity import retrieved_in_groups
from mrcfa.model.frames import FullSizeMask, full_size_mask, network_input
from mrcfa.model.mrcfa import MRCFA

SIZE = (96, 160)


def config_at(size, backbone="b1", dataset="vspw", **changes):
    return preset(dataset, backbone, size=size, **changes)


def decoder_answers(model, arrangement, grouping, images, rounded=in_fp32, streams=1):
    """Logits of every frame, (T, B, classes, H/4, W/4). Without a grouping it is one group."""
    config = model.config
    grouping = grouping or arrangement.memory(config, 4, 1).whole
    encoder = rounded(arrangement.encoder(model, config.size))
    decoder = rounded(arrangement.decoder(model, config.size, Output.LOGITS, grouping))
    answers, state = [], None
    for image in images:
        frames = torch.from_numpy(image).expand(streams, *image.shape)
        features = encoder(frames)
        if state is None:
            entry = features[-1]
            memory = torch.zeros(streams, config.depth, *entry.shape[1:], dtype=entry.dtype)
            state = [memory, torch.zeros(streams, dtype=torch.int32)]
        *state, logits = decoder(*features, *state)
        answers.append(logits)
    return torch.stack(answers).float()


@pytest.mark.parametrize(
    ("dataset", "backbone"),
    [
        ("vspw", "b1"),
        ("cityscapes", "b0"),
        pytest.param("vspw", "b0", marks=pytest.mark.thorough),
        pytest.param("cityscapes", "b1", marks=pytest.mark.thorough),
    ],
)
@torch.no_grad()
def test_groups_of_any_size_are_one_group(dataset, backbone, clip):
    """One, two and three groups, an uneven one, and every token alone."""
    model = MRCFA(config_at((64, 96), backbone, dataset), seed=3)
    kept, images = model.config.kept, clip(4, 64, 96)
    whole = decoder_answers(model, PLAIN, None, images)
    span = whole.max() - whole.min()
    for tokens in {kept, -(-kept // 2), -(-kept // 3), kept - 1, 1}:
        found = decoder_answers(model, PLAIN, Grouping(True, tokens), images)
        assert (found - whole).abs().max() < 1e-5 * span, tokens


@torch.no_grad()
def test_groups_on_cpus_are_one_group(clip):
    """Padded to blocks of 16 tokens; with a constant offset and with a running maximum."""
    model = MRCFA(config_at((192, 320)), seed=3)
    images = clip(2, 192, 320)
    last = [part for part in model.refinement.modules() if isinstance(part, torch.nn.GroupNorm)][-1]
    for gamma in (1.0, 100.0):
        torch.nn.init.constant_(last.weight, gamma)
        whole = decoder_answers(model, ORT_CPU, None, images)
        found = decoder_answers(model, ORT_CPU, Grouping(True, 16), images)
        assert (found - whole).abs().max() < 1e-5 * (whole.max() - whole.min())


@torch.no_grad()
def test_groups_of_several_streams_are_those_of_one(clip):
    model = MRCFA(config_at(SIZE, "b0"), seed=3)
    images = clip(3, *SIZE)
    lone = decoder_answers(model, PLAIN, None, images)
    three = decoder_answers(model, PLAIN, Grouping(True, 5), images, streams=3)
    assert (three - lone).abs().max() < 1e-5 * (lone.max() - lone.min())


@torch.no_grad()
@pytest.mark.thorough
def test_fp16_is_no_worse_in_groups(clip):
    model = MRCFA(config_at((64, 96)), seed=3)
    images = clip(12, 64, 96)
    exact = decoder_answers(model, PLAIN, None, images)
    errors = {
        grouping: (decoder_answers(model, PLAIN, grouping, images, in_fp16) - exact).abs().mean()
        for grouping in (None, Grouping(True, 4), Grouping(True, 1))
    }
    assert max(errors.values()) <= 1.02 * errors[None]


@pytest.mark.parametrize("most", [1, 240, 700])
@torch.no_grad()
def test_the_reference_model_retrieves_in_groups_alike(most, clip, monkeypatch):
    model = MRCFA(config_at(SIZE), seed=3)
    features = [model.encode(network_input(image, SIZE)) for image in clip(2, *SIZE)]
    target, reference = model.as_target(features[1]), model.as_reference(features[0])
    whole = model.retrieve(target, reference)
    monkeypatch.setattr(reference_model, "LARGEST_MAPS", most)
    torch.testing.assert_close(model.retrieve(target, reference), whole, rtol=1e-5, atol=1e-5)


def test_a_softmax_goes_on_where_it_stopped(float64):
    """Also where later maps are larger by hundreds, or smaller."""
    maps, values = 300 * torch.randn(2, 7, 10), torch.randn(2, 10, 3)
    wanted = maps.softmax(dim=2) @ values
    for sizes in ([10], [3, 7], [1, 4, 5], [1] * 10):
        groups = zip(maps.split(sizes, dim=2), values.split(sizes, dim=1), strict=True)
        torch.testing.assert_close(retrieved_in_groups(groups), wanted)


@pytest.mark.parametrize("classes", [2, 16, 17, 40])
def test_a_mask_made_of_few_classes_at_a_time_is_the_argmax(classes):
    """The first of equals included."""
    logits = torch.randn(1, classes, 6, 10).round(decimals=1)
    for frame in ((24, 40), (31, 57)):
        wanted = FullSizeMask((24, 40), frame)(logits)[0].numpy()
        assert (full_size_mask(logits, (24, 40), frame) == wanted).all()


@pytest.mark.parametrize("variant", ["fp32", "fp16", "fp32-gpu"])
@pytest.mark.parametrize("backbone", ["b0", "b1", "b5"])
@pytest.mark.parametrize(("dataset", "size"), [("vspw", (480, 864)), ("cityscapes", (512, 1024))])
def test_the_datasets_own_sizes_are_one_group(variant, backbone, dataset, size):
    config = config_at(size, backbone, dataset)
    grouping = VARIANTS[variant].grouping(config, 1)
    assert grouping.tokens >= config.kept
    assert grouping.one_by_one == (variant == "fp32")


@pytest.mark.parametrize("name", ["fp32", "fp32-gpu"])
def test_a_decoders_memory_grows_with_the_pixels(name):
    """Not with their square: 25 times the pixels of 480×864, at most 27 times the memory."""
    sizes, variant = [(480, 864), (1088, 1920), (2176, 3840)], VARIANTS[name]
    configs = [config_at(size) for size in sizes]
    taken = [variant.memory(each, 1).total(variant.grouping(each, 1)) for each in configs]
    for (smaller, larger), (few, many) in zip(pairwise(taken), pairwise(sizes), strict=True):
        pixels = (many[0] * many[1]) / (few[0] * few[1])
        assert larger / smaller < pixels**1.15


def test_a_smaller_budget_makes_smaller_groups_down_to_one_token():
    config, variant = config_at((1088, 1920)), VARIANTS["fp16"]
    memory, budgets = variant.memory(config, 1), (2000, 500, 200, 80)
    found = [variant.grouping(config, 1, megabytes * 10**6) for megabytes in budgets]
    assert found[0] == Grouping(False, config.kept)
    assert found[1] == Grouping(True, config.kept)
    assert all(one.tokens > other.tokens for one, other in pairwise(found[1:]))
    for grouping, megabytes in zip(found, budgets, strict=True):
        assert memory.total(grouping) <= megabytes * 10**6
    least = -(-memory.total(Grouping(True, 1)) // 10**6)
    assert variant.grouping(config, 1, least * 10**6).tokens >= 1
    with pytest.raises(InvalidValue, match=naming("--activation-memory", least - 1, least)):
        variant.grouping(config, 1, (least - 1) * 10**6)


def test_sizes_past_what_a_tensor_holds_are_refused_by_name_even_in_groups():
    config = config_at((2176, 3840))
    check_options(config, ExportOptions(config.size))
    config = config_at((4320, 7680))
    with pytest.raises(InvalidValue, match=naming("coarsest affinity", "3,149,280,000", "--size")):
        check_options(config, ExportOptions(config.size))


def test_the_groups_of_a_graph_share_their_weights():
    model = MRCFA(config_at(SIZE), seed=3)
    whole, grouped = (
        PLAIN.decoder(model, SIZE, Output.LOGITS, grouping)
        for grouping in (Grouping(False, model.config.kept), Grouping(True, 2))
    )
    counts = [sum(weight.numel() for weight in graph.parameters()) for graph in (whole, grouped)]
    assert counts[1] < counts[0]

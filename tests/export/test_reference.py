"""The refinement that proves large frames is that of the model."""

import pytest
import torch

from mrcfa.data.presets import preset
from mrcfa.export import reference
from mrcfa.export.reference import TokensAsChannels, margins_noted, refined_quickly
from mrcfa.model.config import Method
from mrcfa.model.frames import network_input
from mrcfa.model.methods import build_model


@pytest.mark.parametrize("changes", [{}, {"sar": False}, {"maa": False}], ids=str)
@pytest.mark.parametrize(
    ("dataset", "backbone"), [("vspw", "b0"), ("vspw", "b1"), ("cityscapes", "b1")]
)
@torch.no_grad()
def test_tokens_as_channels_are_refined_like_tokens_on_the_batch_axis(
    dataset, backbone, changes, monkeypatch
):
    """All at once, and a few after the other."""
    config = preset(dataset, backbone, size=(64, 96), **changes)
    refinement = build_model(config, seed=3).refinement
    for part in refinement.modules():
        if isinstance(part, torch.nn.GroupNorm):
            torch.nn.init.uniform_(part.weight, 0.5, 2)
            torch.nn.init.uniform_(part.bias, -1, 1)
    maps = {stride: torch.randn(7, 1, *config.grid(stride)) for stride in config.strides}
    wanted = refinement(maps)
    for cached in (1 << 21, 1):
        monkeypatch.setattr(reference, "CACHED", cached)
        found = TokensAsChannels(refinement)({key: each.clone() for key, each in maps.items()})
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "method", [Method.SEGFORMER, pytest.param(Method.FEATURE_PYRAMID, marks=pytest.mark.thorough)]
)
def test_baselines_have_nothing_to_refine(method, monkeypatch):
    monkeypatch.setattr(reference, "LARGEST_MAPS", 10)
    model = build_model(preset("vspw", "b0", size=(64, 96), method=method), seed=3)
    with refined_quickly(model):
        assert not torch.backends.mkldnn.enabled
    assert torch.backends.mkldnn.enabled


@torch.no_grad()
def test_a_large_frames_model_is_itself_again_after_a_proof(clip, monkeypatch):
    monkeypatch.setattr(reference, "LARGEST_MAPS", 10)
    model = build_model(preset("vspw", "b1", size=(64, 96)), seed=3)
    features = [model.encode(network_input(image, (64, 96))) for image in clip(2, 64, 96)]
    target, answers = model.as_target(features[1]), [model.as_reference(features[0])] * 3
    refinement, wanted = model.refinement, model.decode(target, answers)
    with refined_quickly(model):
        assert model.refinement is not refinement
        torch.testing.assert_close(model.decode(target, answers), wanted, rtol=1e-4, atol=1e-4)
    assert model.refinement is refinement


@torch.no_grad()
def test_the_margin_of_a_choice_is_the_gap_at_its_edge(clip):
    model = build_model(preset("vspw", "b0", size=(64, 96), keep=0.5), seed=3)
    first, second = (model.encode(network_input(image, (64, 96))) for image in clip(2, 64, 96))
    target, reference = model.as_target(second), model.as_reference(first)
    scores = model.importance(target, reference)[0].sort(descending=True).values
    with margins_noted(model) as margins:
        model.decode(target, [reference] * 3)
    assert margins == [pytest.approx(float((scores[2] - scores[3]) / scores.abs().max()))]
    twins = reference._replace(keys={32: reference.keys[32][:, :1].expand(-1, 6, -1)})
    with margins_noted(model) as margins:
        model.select(target, twins)
    assert margins == [0]
    model.select(target, reference)
    assert len(margins) == 1


@torch.no_grad()
def test_a_model_that_keeps_every_token_has_nothing_to_choose(clip):
    model = build_model(preset("vspw", "b0", size=(64, 96), keep=1), seed=3)
    features = model.encode(network_input(clip(1, 64, 96)[0], (64, 96)))
    with margins_noted(model) as margins:
        model.decode(model.as_target(features), [model.as_reference(features)] * 3)
    assert margins == []

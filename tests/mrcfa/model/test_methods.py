"""The paper's baselines: their size, and that they do what their names say."""

import pytest
import torch

from mrcfa import preset
from mrcfa.model.config import Method
from mrcfa.model.methods import build_model
from mrcfa.model.streaming import Memory, decode_next

SIZE = (64, 96)


@pytest.mark.parametrize(
    ("method", "millions"),
    [(Method.MRCFA, 16.2), (Method.SEGFORMER, 13.8), (Method.FEATURE_PYRAMID, 16.2)],
)
def test_parameters_are_as_many_as_in_the_paper(method, millions):
    """Within the paper's last digit."""
    model = build_model(preset("vspw", "b1", method=method))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.1)


def streamed(method, frames):
    model = build_model(preset("vspw", "b0", size=SIZE, classes=5, method=method), seed=1)
    memory, logits = Memory(), []
    for frame in frames:
        answer, memory = decode_next(model, model.encode(frame[None]), memory)
        logits.append(answer)
    return model, logits


@pytest.mark.parametrize("method", Method)
def test_every_method_streams(method):
    _, logits = streamed(method, torch.randn(4, 3, *SIZE))
    assert {tuple(each.shape) for each in logits} == {(1, 5, 16, 24)}
    assert all(each.isfinite().all() for each in logits)


def test_segformer_knows_no_other_frame_and_the_others_do():
    frames = torch.randn(4, 3, *SIZE)
    others = frames.clone()
    others[0] += 1
    for method, differs in (
        (Method.SEGFORMER, False),
        (Method.FEATURE_PYRAMID, True),
        (Method.MRCFA, True),
    ):
        last = [streamed(method, clip)[1][-1] for clip in (frames, others)]
        assert torch.equal(*last) is not differs


def test_segformers_answer_is_the_single_frame_prediction():
    frames = torch.randn(1, 3, *SIZE)
    model, (logits,) = streamed(Method.SEGFORMER, frames)
    torch.testing.assert_close(logits, model.predict_single(model.encode(frames)))


def test_the_pyramid_retrieves_constant_values_as_they_are_at_the_coarsest_scale():
    """Softmax weights sum to one, so values that are all alike come back alike."""
    config = preset("vspw", "b0", size=SIZE, classes=5, scales=1, method=Method.FEATURE_PYRAMID)
    model = build_model(config, seed=1)
    features = model.encode(torch.randn(1, 3, *SIZE))
    target, reference = model.as_target(features), model.as_reference(features)
    constant = reference._replace(values=torch.full_like(reference.values, 3.0))
    found = model.retrieve(target, constant)
    torch.testing.assert_close(found, torch.full_like(found, 3.0))

"""The loss against a plain re-implementation, and which parameters learn how fast."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mrcfa import MRCFA, preset
from mrcfa.training.recipe import Recipe
from mrcfa.training.trainee import Trainee, parameter_groups, set_drop_path

SIZE = (64, 96)
STILL = Recipe(drop_path=0, dropout=0, crop=SIZE)


def trainee(recipe=STILL, backbone="b0", **changes):
    config = preset("vspw", backbone, size=SIZE, classes=5, **changes)
    return Trainee(MRCFA(config, seed=2), recipe).train()


def clip(batch=2, seed=0):
    random = torch.Generator().manual_seed(seed)
    frames = torch.randn(batch, 4, 3, *SIZE, generator=random)
    labels = torch.randint(0, 5, (batch, 4, *SIZE), generator=random)
    labels[:, :, :10] = 255
    labels[0, 1] = 255  # a frame without a mask
    return frames, labels


def plainly(learner, frames, labels):
    """The loss of the paper, written out frame by frame and head by head."""
    model = learner.model
    count = frames.shape[1]
    together = frames.transpose(0, 1).flatten(0, 1)
    fused = model.fusion(stages := model.encoder(together))
    single = F.interpolate(model.linear_pred(fused), size=SIZE, mode="bilinear")
    first = F.cross_entropy(single, labels.transpose(0, 1).flatten(0, 1), ignore_index=255)

    def of(frame):
        rows = slice(frame * len(frames), (frame + 1) * len(frames))
        return type(model.encode(frames[:1, 0]))(tuple(s[rows] for s in stages), fused[rows])

    target = model.as_target(of(count - 1))
    earlier = [model.as_reference(of(number)) for number in range(count - 1)]
    retrieved = [model.retrieve(target, reference) for reference in earlier]
    heads = [head(image) for head, image in zip(learner.deco, retrieved, strict=True)]
    heads.append(model.classify(sum(retrieved) / len(retrieved) + target.feature))
    losses = []
    for logits in heads:
        quarter = F.interpolate(logits, scale_factor=2, mode="bilinear")
        full = F.interpolate(quarter, size=SIZE, mode="bilinear")
        losses.append(F.cross_entropy(full, labels[:, -1], ignore_index=255))
    return 0.5 * first + sum(losses) / len(losses)


@pytest.mark.parametrize("backbone", ["b0", "b1"])
def test_loss_and_gradients_are_those_of_the_formula(backbone):
    learner, (frames, labels) = trainee(backbone=backbone), clip()
    learner.model.fusion.norm.momentum = 0  # the encoder runs once more below
    ours = learner.loss(learner(frames, labels))
    gradients = torch.autograd.grad(ours, list(learner.parameters()))
    wanted = plainly(learner, frames, labels)
    expected = torch.autograd.grad(wanted, list(learner.parameters()))
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)
    for found, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_every_parameter_learns():
    learner, (frames, labels) = trainee(), clip()
    learner.loss(learner(frames, labels)).backward()
    still = [name for name, weight in learner.named_parameters() if weight.grad is None]
    assert still == []


def test_frames_without_truth_count_for_nothing():
    learner, (frames, labels) = trainee(), clip()
    labels[:, :-1] = 255
    (single, counted), _ = learner(frames, labels)
    assert counted == (labels != 255).sum()
    assert single > 0


def test_norms_are_not_decayed_and_the_head_learns_faster():
    learner = trainee()
    groups = parameter_groups(learner, Recipe())
    assert sum(len(group["params"]) for group in groups) == len(list(learner.parameters()))
    kinds = {(round(group["lr"], 8), group["weight_decay"]) for group in groups}
    assert kinds == {(6e-5, 0.01), (6e-5, 0.0), (6e-4, 0.01), (6e-4, 0.0)}
    undecayed = {id(w) for g in groups if not g["weight_decay"] for w in g["params"]}
    norms = [m for m in learner.modules() if isinstance(m, nn.LayerNorm | nn.GroupNorm)]
    assert all(id(norm.weight) in undecayed for norm in norms)


def test_drop_path_grows_with_depth_and_rests_in_evaluation():
    model = MRCFA(preset("vspw", "b0", size=SIZE))
    set_drop_path(model.encoder, 0.7)
    blocks = [block for stage in model.encoder.stages for block in stage.blocks]
    assert [round(block.drop_path, 2) for block in blocks] == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    tokens = torch.randn(64, 6, 256)
    block = blocks[-1].eval()
    assert torch.equal(block(tokens, (2, 3)), block(tokens, (2, 3)))
    block.train()
    branch = block._kept(torch.ones(10_000, 1, 1))
    assert branch.mean() == pytest.approx(1, abs=0.1)
    assert branch.unique().tolist() == pytest.approx([0, 1 / 0.3])

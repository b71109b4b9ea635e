import numpy as np
import pytest
import torch
from cases import GOLDEN, normalised
from naming import naming

from mrcfa import MRCFA, preset
from mrcfa.errors import InvalidValue, Mismatch


def golden(backbone: str, frames: int) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / f"{backbone}_t{frames}_96x160_seed0.npz"))


@pytest.mark.parametrize("frames", [1, 4])
@pytest.mark.parametrize("backbone", ["b0", "b1"])
def test_logits_are_the_authors(backbone, frames, golden_model, clip):
    logits = golden_model(backbone)(normalised(clip(frames, 96, 160)))
    np.testing.assert_allclose(logits[0], golden(backbone, frames)["logits"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("frames", [1, 4])
@pytest.mark.parametrize("backbone", ["b0", "b1"])
def test_stage_features_are_the_authors(backbone, frames, golden_model, clip):
    features = golden_model(backbone).encode(normalised(clip(frames, 96, 160))[:, -1])
    for number, stage in enumerate(features.stages, start=1):
        wanted = golden(backbone, frames)[f"c{number}"].astype(np.float32)
        np.testing.assert_allclose(stage[0], wanted, rtol=2**-10, atol=1e-4)


@pytest.mark.parametrize("backbone", ["b0", "b1"])
def test_selected_tokens_and_affinities_are_the_authors(backbone, golden_model, clip):
    model, wanted = golden_model(backbone), golden(backbone, 4)
    frames = normalised(clip(4, 96, 160))
    target = model.as_target(model.encode(frames[:, -1]))
    for number in range(3):
        reference = model.as_reference(model.encode(frames[:, number]))
        tokens = np.flatnonzero(np.unpackbits(wanted["selected"][number])[:15])
        assert model.select(target, reference)[0].tolist() == tokens.tolist()
        # With one-hot values, channel n of what is retrieved is the weight of token n.
        one_hot = reference._replace(values=torch.eye(15, 256)[None])
        weights = model.retrieve(target, one_hot)[0, tokens].flatten(1).T
        np.testing.assert_allclose(weights, wanted["affinity"][number], atol=1e-3)


@pytest.mark.parametrize(
    ("dataset", "backbone", "millions"),
    [
        ("vspw", "b0", 5.2),
        ("vspw", "b1", 16.2),
        ("vspw", "b2", 27.3),
        ("vspw", "b5", 84.5),
        ("cityscapes", "b0", 4.2),
        ("cityscapes", "b1", 14.9),
    ],
)
def test_parameter_counts_are_those_of_the_papers_vspw_and_cityscapes_tables(
    dataset, backbone, millions
):
    with torch.device("meta"):
        model = MRCFA(preset(dataset, backbone))
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 1) == millions


@pytest.mark.parametrize("backbone", ["b0", pytest.param("b1", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("dataset", ["vspw", "cityscapes"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sar": False},
        {"maa": False},
        {"sar": False, "maa": False},
        {"scales": 1},
        {"scales": 2},
        {"scales": 3},
        {"scales": 4},
        {"keep": 1.0},
        {"references": (2,)},
        {"references": (8, 6, 4, 2)},
    ],
    ids=str,
)
def test_every_ablation_of_the_paper_gives_finite_logits(dataset, backbone, changes):
    model = MRCFA(preset(dataset, backbone, **changes))
    clip = torch.randn(1, len(model.config.references) + 1, 3, 64, 96)
    logits = model(clip)
    assert logits.shape == (1, model.config.classes, 16, 24)
    assert logits.isfinite().all()


def test_clips_of_a_batch_do_not_see_each_other(golden_model):
    model = golden_model("b0")
    clips = torch.randn(2, 4, 3, 64, 64)
    together = model(clips)
    apart = torch.cat([model(clips[:1]), model(clips[1:])])
    torch.testing.assert_close(together, apart, atol=1e-4, rtol=1e-4)


def test_initialisation_follows_the_seed_alone():
    config = preset("vspw", "b0")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, again, other = MRCFA(config, seed=7), MRCFA(config, seed=7), MRCFA(config, seed=8)
    assert torch.equal(torch.get_rng_state(), before)
    weights = [model.query["32"].weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("shape", "kind", "things"),
    [
        ((1, 3, 3, 64, 64), Mismatch, (3, 4)),
        ((1, 4, 3, 90, 150), InvalidValue, ("90x150", "96x160")),
        ((4, 3, 64, 64), InvalidValue, ((4, 3, 64, 64),)),
        ((1, 4, 1, 64, 64), InvalidValue, ((1, 4, 1, 64, 64),)),
    ],
)
def test_a_clip_that_does_not_fit_is_refused_with_the_remedy(shape, kind, things, golden_model):
    with pytest.raises(kind, match=naming(*things)):
        golden_model("b0")(torch.zeros(shape))

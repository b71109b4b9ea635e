import pickle
import re
from dataclasses import replace
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from cases import authors_layout, authors_state
from naming import naming
from safetensors.torch import save_file

from mrcfa import MRCFA, load_weights, preset, save_weights
from mrcfa.errors import Damaged, Mismatch, NotFound
from mrcfa.model.config import Method
from mrcfa.model.methods import build_model


@pytest.fixture
def model():
    return MRCFA(preset("vspw", "b0"))


def saved(content, path):
    torch.save(content, path)
    return path


def same(first: MRCFA, second: MRCFA) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(
    "backbone",
    [
        "b0",
        "b1",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("b2", "b3", "b4", "b5")),
    ],
)
def test_every_authors_layout_fits_its_model(backbone, tmp_path):
    model = MRCFA(preset("vspw", backbone))
    state = {key: torch.ones(shape) for key, shape in authors_layout(backbone).items()}
    load_weights(model, saved({"state_dict": state}, tmp_path / "w.pth"))
    assert all((value == 1).all() for value in model.state_dict().values())


def test_bare_prefixed_and_safetensors_files_hold_the_same_weights(model, golden_model, tmp_path):
    state = authors_state("b0")
    load_weights(model, saved(state, tmp_path / "bare.pth"))
    assert same(model, golden_model("b0"))

    prefixed = MRCFA(model.config)
    load_weights(
        prefixed, saved({f"module.{k}": v for k, v in state.items()}, tmp_path / "ddp.pth")
    )
    assert same(prefixed, model)

    ours = MRCFA(model.config)
    save_weights(model, tmp_path / "ours.safetensors")
    load_weights(ours, tmp_path / "ours.safetensors")
    assert same(ours, model)

    theirs = MRCFA(model.config)
    save_file(state, tmp_path / "authors.safetensors")
    load_weights(theirs, tmp_path / "authors.safetensors")
    assert same(theirs, model)


def test_an_imagenet_backbone_fills_the_encoder_alone(model, golden_model, tmp_path):
    before = model.classify.weight.clone()
    state = {
        key.removeprefix("backbone."): value
        for key, value in authors_state("b0").items()
        if key.startswith("backbone.")
    }
    state["head.weight"], state["head.bias"] = torch.zeros(1000, 256), torch.zeros(1000)
    load_weights(model, saved(state, tmp_path / "mit_b0.pth"))
    assert torch.equal(model.classify.weight, before)
    for key, value in golden_model("b0").encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[key], value)


def test_wrong_and_missing_keys_are_named(model, tmp_path):
    state = authors_state("b0")
    state["decode_head.sr9.weight"] = state.pop("decode_head.sr2.weight")
    named = naming("w.pth", "decode_head.sr2.weight", "decode_head.sr9.weight")
    with pytest.raises(Mismatch, match=named):
        load_weights(model, saved(state, tmp_path / "w.pth"))


def test_at_most_ten_keys_are_named(model, tmp_path):
    entries = list(authors_state("b0").items())
    with pytest.raises(Mismatch, match=naming("w.pth", 40)) as error:
        load_weights(model, saved(dict(entries[50:]), tmp_path / "w.pth"))
    words = re.findall(r"[\w.]+", str(error.value))
    assert len({key for key, _ in entries} & set(words)) == 10


def test_a_checkpoint_of_another_backbone_names_keys_and_remedy(model, tmp_path):
    with pytest.raises(Mismatch, match=naming("w.pth", "--backbone", "--dataset")):
        load_weights(model, saved(authors_state("b1"), tmp_path / "w.pth"))


def test_wrong_shapes_are_named_and_leave_the_model_untouched(model, tmp_path):
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = authors_state("b0")
    state["decode_head.linear_pred.weight"] = torch.zeros(150, 256, 1, 1)
    with pytest.raises(
        Mismatch,
        match=naming("decode_head.linear_pred.weight", "(150, 256, 1, 1)", "(124, 256, 1, 1)"),
    ):
        load_weights(model, saved(state, tmp_path / "w.pth"))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_nan_weights_are_refused_by_name(model, tmp_path):
    state = authors_state("b0")
    state["backbone.norm1.weight"][3] = float("nan")
    with pytest.raises(Damaged, match=naming("w.pth", "NaN", "backbone.norm1.weight")):
        load_weights(model, saved(state, tmp_path / "w.pth"))


@pytest.mark.parametrize(
    "change",
    [
        torch.Tensor.to_sparse,
        torch.Tensor.to_sparse_csr,
        lambda weight: weight.to("meta"),
        lambda weight: weight.to(torch.float8_e4m3fn),
        lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
        lambda weight: torch.nested.nested_tensor([weight]),
        lambda weight: torch.full(weight.shape, float("nan"), dtype=torch.complex64),
        lambda weight: torch.full(weight.shape, 1e300, dtype=torch.float64),
        torch.Tensor.long,
        torch.Tensor.bool,
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_only_finite_dense_floats_are_weights(model, tmp_path, change):
    state, key = authors_state("b0"), "backbone.block1.0.attn.q.weight"
    state[key] = change(state[key])
    with pytest.raises(Damaged, match=naming("w.pth", key)):
        load_weights(model, saved(state, tmp_path / "w.pth"))


def test_a_tensor_that_claims_to_be_huge_is_refused_by_its_shape(model, tmp_path):
    state, key = authors_state("b0"), "backbone.block1.0.attn.q.weight"
    state[key] = torch.zeros(1).expand(10**9, 10**9)
    with pytest.raises(Mismatch, match=naming("w.pth", key)):
        load_weights(model, saved(state, tmp_path / "w.pth"))


def test_an_archive_that_unpacks_to_far_more_than_it_is_is_refused_unread(
    model, tmp_path, monkeypatch
):
    saved(authors_state("b0"), tmp_path / "w.pth")
    with ZipFile(tmp_path / "w.pth") as whole, ZipFile(tmp_path / "bomb.pth", "w") as bomb:
        for name in whole.namelist():
            content = bytes(1 << 25) if name.endswith("data/3") else whole.read(name)[:100]
            bomb.writestr(name, content, ZIP_DEFLATED)
    monkeypatch.setattr("torch.load", None)
    with pytest.raises(Damaged, match=naming("bomb.pth")):
        load_weights(model, tmp_path / "bomb.pth")


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_file_far_larger_than_the_model_is_refused_unread(model, tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)  # a hole, which no disk has to hold
    with pytest.raises(Mismatch, match=naming(name, "--backbone")):
        load_weights(model, tmp_path / name)


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_that_wants_to_run_code_is_refused(model, tmp_path):
    trace = tmp_path / "ran"
    saved({"state_dict": _Bomb(trace)}, tmp_path / "bomb.pth")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(_Bomb(trace)))
    with pytest.raises(Damaged, match=naming("bomb.pth", "io.open")):
        load_weights(model, tmp_path / "bomb.pth")
    with pytest.raises(Damaged, match=naming("raw.pth")):
        load_weights(model, tmp_path / "raw.pth")
    assert not trace.exists()


@pytest.mark.parametrize("name", ["text.pth", "text.safetensors"])
@pytest.mark.parametrize("content", [b"", b"hello, I am no checkpoint", bytes(range(256)) * 8])
def test_a_file_that_is_no_checkpoint_is_said_to_be_none(model, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Damaged, match=naming(name)):
        load_weights(model, tmp_path / name)


@pytest.mark.parametrize("content", [[1, 2], {}, {"epoch": 3}, torch.zeros(3)], ids=str)
def test_a_file_without_a_state_dict_is_refused(model, tmp_path, content):
    with pytest.raises(Damaged, match=naming("w.pth")):
        load_weights(model, saved(content, tmp_path / "w.pth"))


def test_a_missing_file_is_named(model, tmp_path):
    with pytest.raises(NotFound, match=naming(tmp_path / "nowhere.pth")):
        load_weights(model, tmp_path / "nowhere.pth")


def test_classifiers_of_other_classes_may_stay_new(checkpoint):
    model = MRCFA(preset("vspw", "b0", classes=7))
    before = model.classify.weight.clone()
    new = load_weights(model, checkpoint("b0"), to_train=True)
    assert new == ["decode_head.linear_pred", "decode_head.deco4.smalldecoder.1"]
    assert torch.equal(model.classify.weight, before)
    whole = MRCFA(preset("vspw", "b0"))
    assert load_weights(whole, checkpoint("b0"), to_train=True) == []
    assert torch.equal(model.value.weight, whole.value.weight)


def test_a_model_to_train_starts_from_what_it_shares_with_another_method(tmp_path):
    config = preset("vspw", "b0", classes=7)
    single = build_model(replace(config, method=Method.SEGFORMER), seed=5)
    save_weights(single, tmp_path / "single.safetensors")
    model = MRCFA(config)
    before = model.value.weight.clone()
    new = load_weights(model, tmp_path / "single.safetensors", to_train=True)
    assert new == ["classify", "key", "query", "reduce", "refinement", "value"]
    assert torch.equal(model.linear_pred.weight, single.linear_pred.weight)
    assert torch.equal(model.value.weight, before)
    save_weights(model, tmp_path / "temporal.safetensors")
    other = build_model(replace(config, method=Method.SEGFORMER))
    assert load_weights(other, tmp_path / "temporal.safetensors", to_train=True) == []
    assert torch.equal(other.fusion.mix.weight, model.fusion.mix.weight)
    with pytest.raises(Mismatch, match=naming("single.safetensors", "query.32.weight")):
        load_weights(model, tmp_path / "single.safetensors")

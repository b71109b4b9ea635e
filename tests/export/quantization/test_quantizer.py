"""`mrcfa quantize` adds a whole variant to a bundle, or nothing."""

import json
import shutil

import numpy as np
import pytest
from naming import naming

import mrcfa.export.quantization.quantizer as quantizer
from mrcfa.bundle import MANIFEST, Bundle
from mrcfa.bundle.inspection import summary
from mrcfa.bundle.layers import narrow_products
from mrcfa.engines.builder import BuildOptions, build_engines
from mrcfa.engines.choices import FlavourChoice
from mrcfa.engines.target import choose_target
from mrcfa.errors import AlreadyExists, Unsupported


@pytest.fixture
def plain(bundle, tmp_path, monkeypatch):
    """A copy of a bundle without 8 bits, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    shutil.copytree(bundle("b0", references=(2, 1), variants=("fp32",)), tmp_path / "plain")
    return tmp_path / "plain"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_manifest_tells_which_blocks_have_8_bits_and_what_that_costs(eight_bits, bundle):
    made = Bundle.open(eight_bits("int8"))
    variant = made.manifest.variants["int8"]
    found = variant.quantization
    assert (variant.precision, variant.device.value) == ("int8", "gpu")
    assert "encoder/stages/0/blocks/0/mlp" in found.blocks
    assert {"stm", "maa/8", "fusion"} <= {*found.blocks, *found.fp16}
    assert found.sensitivity.keys() == {*found.blocks, *found.fp16}
    assert [count for count, _ in found.curve] == sorted({count for count, _ in found.curve})
    assert found.curve[-1][0] == len(found.blocks) + len(found.fp16)
    assert (found.measure, found.frames) == ("agreement", 6)
    assert found.shares["encoder"] > 0.9
    assert found.shares["weights"] > 0.9
    order = [found.sensitivity[name] for name in found.blocks]
    assert order == sorted(order)
    for graph in variant.graphs.values():
        made.file(graph.file)
    fp16 = Bundle.open(bundle("b0")).manifest.files["encoder.fp16.onnx"]
    assert made.manifest.files["encoder.int8.onnx"].bytes < 0.6 * fp16.bytes


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("precision", "sm", "name"),
    [("int8", 86, "Int8"), ("fp8", 89, "FP8")],
)
def test_8_bit_products_are_in_the_layers_that_the_compiler_lists(
    precision, sm, name, eight_bits, tmp_path
):
    pytest.importorskip("tensorrt_rtx", reason="not run: tensorrt_rtx is not installed")
    folder = tmp_path / precision
    shutil.copytree(eight_bits(precision), folder)
    target = choose_target(FlavourChoice.RTX, [sm])
    built = build_engines(folder, target, BuildOptions(precision=precision))
    layers = built.plans["encoder"].log.layers
    kinds = [
        layer["inputs"][0]["dtype"]
        for layer in layers
        if layer["type"] in ("gemm", "correlation", "runtime_fusion") and layer["inputs"]
    ]
    assert kinds.count(name) > 0.8 * len(kinds) > 20
    fused = [layer for layer in layers if "_mha" in layer["name"]]
    assert all(tensor["dtype"] == name for layer in fused for tensor in layer["inputs"])
    blocks = sum(built.bundle.config.depths)
    assert len(fused) == (blocks if precision == "int8" else 0)  # FP8 not with these 15 keys
    count = kinds.count(name) + len(fused)
    assert narrow_products(layers) == count
    assert f"; {count} products in 8 bits" in summary(built.bundle)
    assert any(
        tensor["dtype"] == name
        for layer in built.plans["decoder"].log.layers
        for tensor in layer["outputs"]
    )


def test_a_variant_that_is_there_is_replaced_only_by_force_and_its_engines_go(
    eight_bits, options, tmp_path, monkeypatch
):
    shutil.copytree(eight_bits("int8"), tmp_path / "made")
    before = contents(tmp_path / "made")
    with pytest.raises(AlreadyExists, match=naming("made", "int8", "--force")):
        quantizer.quantize(tmp_path / "made", options())
    assert contents(tmp_path / "made") == before

    old = Bundle.open(tmp_path / "made")
    engine = _engine(old)
    old = old.with_engine(engine, {engine.encoder: b"e", engine.decoder: b"d"})
    variant = old.manifest.variants["int8"]
    graphs = {part: old.file(graph.file).read_bytes() for part, graph in variant.graphs.items()}
    renamed = {part: f"{part}.int8.0123.onnx" for part in graphs}
    new = old.with_variant(
        "int8", _filed(variant, renamed), {renamed[part]: graphs[part] for part in graphs}
    )
    names = {path.name for path in new.path.iterdir()} - {MANIFEST}
    assert names == set(new.manifest.files)
    assert set(renamed.values()) < names
    assert new.manifest.engines == ()


@pytest.mark.thorough
def test_after_an_interruption_it_goes_on_and_the_bundle_is_as_it_was(plain, options, monkeypatch):
    before = contents(plain)
    measured, few = [], 3
    real = quantizer.blocks_of
    monkeypatch.setattr(quantizer, "blocks_of", lambda *given: real(*given)[:few])

    class Stopping(quantizer.Sensitivity):
        def of(self, block):
            if len(measured) == 2:
                raise KeyboardInterrupt
            measured.append(block.name)
            return super().of(block)

    collected = []
    count = quantizer.collect
    monkeypatch.setattr(
        quantizer, "collect", lambda *given: (collected.append(1), count(*given))[1]
    )
    with monkeypatch.context() as patch:
        patch.setattr(quantizer, "Sensitivity", Stopping)
        with pytest.raises(KeyboardInterrupt):
            quantizer.quantize(plain, options())
    assert contents(plain) == before
    assert len(measured) == 2

    class Counting(quantizer.Sensitivity):
        def of(self, block):
            measured.append(block.name)
            return super().of(block)

    monkeypatch.setattr(quantizer, "Sensitivity", Counting)
    made, found = quantizer.quantize(plain, options())
    assert len(measured) == len(set(measured)) == 2 * few
    assert len(collected) == 1
    assert "int8" in made.manifest.variants
    assert not list((plain.parent / ".cache" / "mrcfa" / "quantize").iterdir())
    assert json.loads((plain / MANIFEST).read_text())["variants"]["int8"]["quantization"]
    assert np.isfinite(found.loss)


@pytest.mark.thorough
def test_a_loss_that_nothing_meets_leaves_the_bundle_as_it_was(plain, options, monkeypatch):
    real = quantizer.blocks_of
    monkeypatch.setattr(quantizer, "blocks_of", lambda *given: real(*given)[1:2])
    before = contents(plain)
    with pytest.raises(Unsupported, match=naming("--keep-loss")):
        quantizer.quantize(plain, options(keep_loss=1e-9))
    assert contents(plain) == before


def _engine(bundle):
    from mrcfa.bundle.manifest import Engine

    return Engine("rtx", "1.7", (86,), "int8", "int8", None, "e.engine", "d.engine")


def _filed(variant, files):
    from dataclasses import replace

    return replace(
        variant,
        encoder=replace(variant.encoder, file=files["encoder"]),
        decoder=replace(variant.decoder, file=files["decoder"]),
    )

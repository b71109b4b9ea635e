import numpy as np
import pytest

from mrcfa import MRCFA, load_weights
from mrcfa.backends.eager import full_size_mask, network_input
from mrcfa.benchmarks import segformer
from mrcfa.benchmarks.peer import Peer
from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.data.synthetic import drifting_clip


@pytest.fixture
def opened(bundle, peer_cache):
    return Bundle.open(bundle("b0"))


@pytest.mark.parametrize(
    ("precision", "agreement"),
    [("fp32", 0.999), pytest.param("fp16", 0.97, marks=pytest.mark.thorough)],
)
def test_the_peer_is_the_models_own_single_frame_segformer(opened, precision, agreement):
    model = MRCFA(opened.config)
    load_weights(model, opened.file(WEIGHTS))
    (image,) = drifting_clip(1, opened.manifest.frame)
    logits = model.predict_single(model.encode(network_input(image, opened.config.size)))
    wanted = full_size_mask(logits, opened.config.size, opened.manifest.frame)
    outputs, _ = Peer(opened, "cpu", precision, threads=1).step(image, None)
    assert np.mean(outputs["mask"] == wanted) > agreement


def test_the_peer_is_exported_once_and_not_into_the_bundle(opened, monkeypatch):
    before = sorted(opened.path.iterdir())
    Peer(opened, "cpu", "fp32", threads=1)
    monkeypatch.setattr(segformer, "write_segformer", None)
    Peer(opened, "cpu", "fp32", threads=1)
    assert sorted(opened.path.iterdir()) == before

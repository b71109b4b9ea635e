"""TensorRT's profiler on the fake GPU."""

import fake_gpu
import pytest
from naming import naming

from mrcfa.benchmarks.layer_times import LayerTime, slowest_layers
from mrcfa.bundle import Unfit


def test_the_ten_slowest_layers_of_both_graphs_are_told_slowest_first(with_engine):
    encoder = {f"block {ms}": float(ms) for ms in (1, 4, 5, 8, 9, 12)}
    decoder = {f"refine {ms}": float(ms) for ms in (11, 10, 7, 6, 3, 2)}
    assert slowest_layers(*with_engine(encoder, decoder)) == [
        LayerTime("encoder", "block 12", 12),
        LayerTime("decoder", "refine 11", 11),
        LayerTime("decoder", "refine 10", 10),
        LayerTime("encoder", "block 9", 9),
        LayerTime("encoder", "block 8", 8),
        LayerTime("decoder", "refine 7", 7),
        LayerTime("decoder", "refine 6", 6),
        LayerTime("encoder", "block 5", 5),
        LayerTime("encoder", "block 4", 4),
        LayerTime("decoder", "refine 3", 3),
    ]


def test_layers_are_timed_in_contexts_like_those_of_streams(with_engine, monkeypatch):
    """RTX's engines are built for memory that the user allocates: others give them none."""
    create, strategies = fake_gpu.IExecutionContext.__init__, []

    def noted(self, engine, strategy, cache, *rest):
        strategies.append((strategy, cache is not None))
        create(self, engine, strategy, cache, *rest)

    monkeypatch.setattr(fake_gpu.IExecutionContext, "__init__", noted)
    slowest_layers(*with_engine({"a": 1.0}, {"b": 1.0}))
    user_managed = fake_gpu.ExecutionContextAllocationStrategy.USER_MANAGED
    assert strategies == [(user_managed, True)] * 2


def test_an_engine_that_does_not_load_is_named(with_engine, monkeypatch):
    bundle, engine = with_engine({}, {})
    monkeypatch.setattr(fake_gpu.Runtime, "deserialize_cuda_engine", lambda self, plan: None)
    with pytest.raises(Unfit, match=naming("encoder.engine")):
        slowest_layers(bundle, engine)

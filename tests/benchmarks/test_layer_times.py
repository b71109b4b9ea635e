"""TensorRT's profiler on the fake GPU."""

from mrcfa.benchmarks.layer_times import LayerTime, slowest_layers


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

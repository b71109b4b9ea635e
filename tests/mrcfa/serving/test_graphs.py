"""Graphs of several streams as Triton runs them: some rows, others without a frame, any order."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from mrcfa import Stream
from mrcfa.bundle import Bundle
from mrcfa.serving.graphs import padded

ROUNDS = 14


class Triton:
    """Triton's scheduler and its ONNX Runtime backend on a batched pair of graphs."""

    def __init__(self, path):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        variant = Bundle.open(path).manifest.variants["fp32"]
        self._encoder, self._decoder = (
            ort.InferenceSession(padded(onnx.load(path / graph.file)).SerializeToString(), options)
            for graph in variant.graphs.values()
        )
        shapes = {each.name: each.shape[1:] for each in self._decoder.get_inputs()}
        kinds = {"memory": np.float32, "frame": np.int32}
        self._states = {name: np.zeros((1, *shapes[name]), kind) for name, kind in kinds.items()}
        self._slots = {}

    def start(self, slot):
        self._slots[slot] = dict(self._states)

    def masks(self, frames):
        """`frames` by slot. Slots up to the last one make the batch; others get undefined state."""
        rows = range(max(frames) + 1)
        seen = [self._run(self._encoder, {"image": frames[slot][None]}) for slot in sorted(frames)]
        seen = dict(zip(sorted(frames), seen, strict=True))
        garbage = {"memory": np.nan, "frame": -(2**31)}
        batch = {
            name: np.concatenate(
                [seen[slot][name] if slot in seen else seen[min(seen)][name] for slot in rows]
            )
            for name in seen[min(seen)]
        }
        for name, zeros in self._states.items():
            undefined = np.full_like(zeros, garbage[name])
            batch[name] = np.concatenate(
                [self._slots[slot][name] if slot in frames else undefined for slot in rows]
            )
        batch["ready"] = np.array([[slot in frames] for slot in rows], np.int32)
        answer = self._run(self._decoder, batch)
        for slot in frames:
            self._slots[slot] = {
                name: answer[f"{name}_out"][slot : slot + 1] for name in self._states
            }
        return {slot: answer["mask"][slot] for slot in frames}

    @staticmethod
    def _run(session, inputs):
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("slots", [3, 4])
def test_every_slot_is_a_lone_stream_bit_for_bit_whatever_the_others_do(slots, bundle, clip):
    triton, chance = Triton(bundle("b0", streams=slots)), np.random.default_rng(0)
    videos = [clip(ROUNDS, 96, 160, seed) for seed in range(slots)]
    streams = [Stream(bundle("b0"), threads=1) for _ in videos]
    for slot in range(slots):
        triton.start(slot)
    compared = 0
    for number in range(ROUNDS):
        chosen = [slot for slot in range(slots) if chance.random() < 0.6] or [slots - 1]
        if number == 9:
            triton.start(1)
            streams[1].reset()
        found = triton.masks({slot: videos[slot][number] for slot in chosen})
        for slot in chosen:
            np.testing.assert_array_equal(found[slot], streams[slot](videos[slot][number]))
            compared += 1
    assert compared > ROUNDS


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_a_padded_graph_takes_any_number_of_rows_and_keeps_every_name(bundle, part):
    path = bundle("b0", streams=3)
    before = onnx.load(path / f"{part}.onnx").graph
    after = padded(onnx.load(path / f"{part}.onnx")).graph
    names = [each.name for each in before.input]
    extra = ["ready"] if part == "decoder" else []
    assert [each.name for each in after.input] == names + extra
    assert [each.name for each in after.output] == [each.name for each in before.output]
    for value in (*after.input, *after.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "n"

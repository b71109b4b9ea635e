"""Parts that are traced once: the graph of a module in which they were written out by hand."""

import numpy as np
import onnxruntime as ort
import pytest
import torch
from torch import nn

from mrcfa.export.onnx_graph import to_onnx
from mrcfa.export.repeated import Repeated, Spec

runs = []
"""Every run of a part; torch.export forgets what a module notes about itself."""


class Scaled(nn.Module):
    """(x, y) -> their weighted sum, and its largest number along the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[2.0], [3.0]]))

    def forward(self, *inputs):
        runs.append(self)
        total = inputs[0] * self.weight[0] + inputs[1] * self.weight[1]
        return total, total.amax(dim=-1)

    def outputs(self, *inputs):
        shape = tuple(inputs[0].shape)
        return [Spec(shape, torch.float32), Spec(shape[:-1], torch.float32)]


class InGroups(nn.Module):
    """(4, n) -> (4, n), a few columns after the other."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns, self.part = columns, Repeated(Scaled(), "Scaled")

    def forward(self, x):
        found = [self.part(each, each.exp()) for each in x.split(self.columns, dim=1)]
        return torch.cat([total / (1 + most[:, None]) for total, most in found], dim=1)


@pytest.mark.parametrize(
    ("columns", "traced"),
    [
        pytest.param(12, 1, marks=pytest.mark.thorough),
        pytest.param(4, 1, marks=pytest.mark.thorough),
        (5, 2),
    ],
)
def test_a_part_is_traced_once_for_each_kind_of_inputs(columns, traced):
    """Twelve columns in one group, in three, and in two with two more."""
    module, x = InGroups(columns), torch.rand(4, 12)
    wanted = module(x).detach().numpy()
    runs.clear()
    model = to_onnx(module, {"x": torch.zeros(4, 12)}, ["y"], opset=18)
    assert len(runs) == traced
    assert {node.domain for node in model.graph.node} == {""}
    assert [item.domain for item in model.opset_import] == [""]
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], wanted, rtol=1e-6)


def test_calls_of_a_part_share_its_constants():
    few, many = (
        to_onnx(InGroups(columns), {"x": torch.zeros(4, 256)}, ["y"], opset=18)
        for columns in (128, 32)
    )
    assert len(few.graph.initializer) >= len(many.graph.initializer) - 1  # sizes of the split

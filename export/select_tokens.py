"""STM's choice of tokens as the ONNX local function `mrcfa::SelectTokens`.

TensorRT runs a plugin for a call that carries `plugin_namespace` and `plugin_version` if such a
plugin is registered. Every other runtime runs the body, which is TopK and standard operators.
"""

from dataclasses import dataclass

import onnx
import torch
from onnx import TensorProto, helper
from torch import Tensor
from torch.nn import functional as F

DOMAIN, NAME, VERSION = "mrcfa", "SelectTokens", 1


@dataclass(frozen=True)
class SelectTokens:
    """The attributes of a call: keep S tokens of a key grid that is upsampled `factor` times."""

    keep: int
    top: int
    height: int
    width: int
    factor: int

    @property
    def tokens(self) -> int:
        return self.height * self.width * self.factor**2

    def indices(self, affinity: Tensor) -> Tensor:
        """(R, queries, keys) affinities at 1/32 -> (R, S) int32, the S most important tokens."""
        if torch.onnx.is_in_onnx_export():
            return torch.onnx.ops.symbolic(
                f"{DOMAIN}::{NAME}",
                (affinity,),
                attrs={**vars(self), "plugin_namespace": DOMAIN, "plugin_version": str(VERSION)},
                dtype=torch.int32,
                shape=(affinity.shape[0], self.keep),
                version=VERSION,
            )
        scores = affinity.topk(self.top, dim=1).values.float().sum(dim=1)
        if self.factor > 1:
            grid = scores.unflatten(1, (1, self.height, self.width))
            scores = F.interpolate(
                grid, scale_factor=self.factor, mode="bilinear", align_corners=False
            ).flatten(1)
        return scores.topk(self.keep, dim=1).indices.int()


def function(selection: SelectTokens, opset: int) -> onnx.FunctionProto:
    """The function's body. Constants repeat the call's attributes, so any parser can inline it."""

    def constant(name: str, values: list[int] | list[float]) -> onnx.NodeProto:
        """A tensor, because ONNX Runtime 1.18 to 1.23 refuse `value_ints` for TopK's k."""
        kind = TensorProto.FLOAT if isinstance(values[0], float) else TensorProto.INT64
        tensor = helper.make_tensor(name, kind, [len(values)], values)
        return helper.make_node("Constant", [], [name], name=name, value=tensor)

    nodes = [
        constant("top", [selection.top]),
        helper.make_node(
            "TopK", ["affinity", "top"], ["largest", "_queries"], name="largest", axis=1
        ),
        helper.make_node("Cast", ["largest"], ["largest32"], name="widen", to=TensorProto.FLOAT),
        constant("query_axis", [1]),
        helper.make_node(
            "ReduceSum", ["largest32", "query_axis"], ["coarse"], name="importance", keepdims=0
        ),
    ]
    scores = "coarse"
    if selection.factor > 1:
        nodes += [
            constant("image_shape", [0, 1, selection.height, selection.width]),
            helper.make_node("Reshape", ["coarse", "image_shape"], ["image"], name="as_image"),
            constant("scales", [1.0, 1.0, float(selection.factor), float(selection.factor)]),
            helper.make_node(
                "Resize",
                ["image", "", "scales"],
                ["finer"],
                name="upsample",
                mode="linear",
                coordinate_transformation_mode="half_pixel",
            ),
            constant("flat_shape", [0, selection.tokens]),
            helper.make_node("Reshape", ["finer", "flat_shape"], ["scores"], name="as_scores"),
        ]
        scores = "scores"
    nodes += [
        constant("keep", [selection.keep]),
        helper.make_node(
            "TopK", [scores, "keep"], ["_scores", "indices"], name="keep_most", axis=1
        ),
        helper.make_node("Cast", ["indices"], ["selected"], name="narrow", to=TensorProto.INT32),
    ]
    return helper.make_function(
        DOMAIN,
        NAME,
        ["affinity"],
        ["selected"],
        nodes,
        [helper.make_opsetid("", opset)],
        attributes=[*vars(selection), "plugin_namespace", "plugin_version"],
    )

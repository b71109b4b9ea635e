"""The forms in which a target can take a graph: they compute the same at different speeds."""

from mrcfa.bundle.flavours import Flavour
from mrcfa.engines.target import Target
from mrcfa.machine.extras import load

AS_EXPORTED = "as exported"
SHIFTED = "shifted sums"
"""Grouped convs as sums of shifted images."""
WIDE = "FP16 attention"


def forms_of(graph: bytes, target: Target, plugin: bool) -> dict[str, bytes]:
    """Name of each form -> its ONNX file.

    TensorRT-RTX has no kernel for grouped convs on sm_75, and fuses INT8 attention there only if it
    is small: else it is FP16. A plugin's call goes without the function's body: parsers before 10.7
    always prefer a body.
    """
    model = load("onnx").load_model_from_string(graph)
    if plugin:
        del model.functions[:]
    forms = {AS_EXPORTED: model}
    turing = target.flavour is Flavour.RTX and 75 in target.sms
    shifts = load("mrcfa.engines.shifts")
    if shifts.has_grouped_convs(model):
        last = load("mrcfa.engines.depthwise").with_channels_last(model)
        shifted = {SHIFTED: shifts.without_grouped_convs(last)}
        forms = shifted if turing else {**forms, **shifted}
    attention = load("mrcfa.engines.attention")
    if turing and attention.has_narrow_attention(model):
        wider = attention.with_fp16_attention
        wide = {_and(name, WIDE): wider(form) for name, form in forms.items()}
        forms = wide if attention.is_too_large_for_turing(model) else {**forms, **wide}
    return {name: bytes(form.SerializeToString()) for name, form in forms.items()}


def _and(name: str, other: str) -> str:
    return other if name == AS_EXPORTED else f"{name}, {other}"

"""Plain SegFormer as a user would deploy it: one frame in, its mask out, no graph rewrites."""

import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.bundle.manifest import Manifest, Output
from mrcfa.bundle.precisions import precision_named
from mrcfa.machine.files import replaced
from mrcfa.model import segformer
from mrcfa.model.frames import FullSizeMask, normaliser
from mrcfa.model.methods import build_model
from mrcfa.model.weights import load_weights

OPSET = 18


class SegFormer(nn.Module):
    """A frame -> uint8 mask (1, h, w), or logits (1, classes, H/4, W/4).

    The encoder, fusion and single-frame head of every method form a SegFormer; these are used.
    """

    def __init__(self, model: segformer.SegFormer, manifest: Manifest, dtype: torch.dtype) -> None:
        super().__init__()
        self.prepare = normaliser(model.config.size, manifest.input)
        self.encoder, self.fusion, self.predict = model.encoder, model.fusion, model.linear_pred
        self.answer: nn.Module = nn.Identity()
        if manifest.output is Output.MASK:
            self.answer = FullSizeMask(model.config.size, manifest.frame)
        self.to(dtype).eval()

    def forward(self, image: Tensor) -> Tensor:
        return self.answer(self.predict(self.fusion(self.encoder(self.prepare(image)))))


def write_segformer(bundle: Bundle, precision: str, path: Path) -> None:
    """Write the bundle's single-frame SegFormer as ONNX, as `torch.onnx.export` exports it."""
    model = build_model(bundle.config)
    load_weights(model, bundle.file(WEIGHTS))
    manifest = bundle.manifest
    segformer = SegFormer(model, manifest, getattr(torch, precision_named(precision).dtype))
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with replaced(path) as part, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            segformer,
            (torch.zeros(1, *manifest.input.shape(manifest.frame), dtype=torch.uint8),),
            part,
            input_names=["image"],
            output_names=[manifest.output.value],
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )

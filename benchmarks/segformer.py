"""Plain SegFormer as a user would deploy it instead: one frame in, its mask out, nothing folded."""

import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mrcfa.bundle import WEIGHTS, Bundle
from mrcfa.config import MEAN, STD
from mrcfa.model import MRCFA
from mrcfa.sinks import replaced
from mrcfa.weights import load_weights

OPSET = 18
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


class SegFormer(nn.Module):
    """uint8 (1, h, w, 3) -> uint8 mask (1, h, w), or logits (1, classes, H/4, W/4).

    MRCFA's encoder, fusion and single-frame head are SegFormer, so they are taken from the model.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: MRCFA, frame: tuple[int, int], output: str, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.encoder, self.fusion, self.predict = model.encoder, model.fusion, model.linear_pred
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(STD).view(1, 3, 1, 1))
        self.size, self.frame, self.output = model.config.size, frame, output
        self.to(dtype).eval()

    def forward(self, image: Tensor) -> Tensor:
        pixels = image.to(self.mean.dtype).permute(0, 3, 1, 2)
        pixels = (_resized(pixels, self.size) - self.mean) / self.std
        logits = self.predict(self.fusion(self.encoder(pixels)))
        if self.output == "logits":
            return logits
        return _resized(_resized(logits, self.size), self.frame).argmax(dim=1).to(torch.uint8)


def write_segformer(bundle: Bundle, precision: str, path: Path) -> None:
    """The bundle's own single-frame SegFormer as ONNX: what `torch.onnx.export` makes of it."""
    model = MRCFA(bundle.config)
    load_weights(model, bundle.file(WEIGHTS))
    manifest = bundle.manifest
    segformer = SegFormer(model, manifest.frame, manifest.output, DTYPES[precision])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with replaced(path) as part, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            segformer,
            (torch.zeros(1, *manifest.frame, 3, dtype=torch.uint8),),
            part,
            input_names=["image"],
            output_names=[manifest.output],
            opset_version=OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


def _resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(image.shape[2:]) == size:
        return image
    return F.interpolate(image, size=size, mode="bilinear", align_corners=False)

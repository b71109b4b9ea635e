"""Validation of a model in training: metrics on whole videos, streamed as at inference."""

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mrcfa.data.dataset import LabelledVideos
from mrcfa.data.images import read_image
from mrcfa.data.metrics import WINDOWS, ConfusionMatrix, VideoConsistency, mean_consistency
from mrcfa.model.frames import full_size_mask, network_input
from mrcfa.model.segformer import SegFormer
from mrcfa.model.streaming import Memory, decode_next

Strip = list[tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]]
"""Frames (h, w, 3), each with its truth and mask (h, w)."""
PICTURED = 4


@dataclass(frozen=True)
class Scores:
    """Metrics of one validation; undefined ones are NaN."""

    miou: float
    single_miou: float
    """The mIoU of the single-frame head on the same frames."""
    mvc: dict[int, float]
    """The mVC_n for each window length n."""
    strip: Strip
    """The last annotated frames of the first videos, for the report."""


def validate(
    model: SegFormer, videos: LabelledVideos, interrupted: threading.Event | None = None
) -> Scores:
    """Validate on whole videos; if `interrupted` is set, raise KeyboardInterrupt."""
    was_training = model.training
    model.eval()
    classes, device = model.config.classes, model.linear_pred.weight.device
    confusion, single = ConfusionMatrix(classes), ConfusionMatrix(classes)
    windows: dict[int, list[NDArray[np.float64]]] = {length: [] for length in WINDOWS}
    strip: Strip = []
    for clip in videos.clips:
        memory, consistency = Memory(), VideoConsistency()
        for path in clip.images:
            if interrupted is not None and interrupted.is_set():
                raise KeyboardInterrupt
            image = read_image(path)
            size = (image.shape[0], image.shape[1])
            features = model.encode(network_input(image, model.config.size).to(device))
            logits, memory = decode_next(model, features, memory)
            if path not in clip.masks:
                continue
            shown, truth = image, videos.truth(clip.masks[path])
            mask = full_size_mask(logits, model.config.size, size)
            confusion.add(mask, truth)
            alone = full_size_mask(model.predict_single(features), model.config.size, size)
            single.add(alone, truth)
            if videos.dense:
                consistency.add(mask, truth)
        if len(strip) < PICTURED:
            strip.append((shown, truth, mask))
        for length in WINDOWS:
            windows[length].append(consistency.windows(length))
    model.train(was_training)
    mvc = {length: mean_consistency(windows[length]) for length in WINDOWS}
    return Scores(confusion.mean_iou, single.mean_iou, mvc, strip)

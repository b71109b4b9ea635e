"""The paper's metrics of bundles on a dataset, computed video by video.

The scores of each finished video stay in the user's cache until the whole evaluation is done, so
the same command resumes an interrupted evaluation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mrcfa
from mrcfa.benchmarks.candidate import Candidate
from mrcfa.data.dataset import Clip, LabelledVideos
from mrcfa.data.datasets import labelled_videos
from mrcfa.data.frames import Classes, labelled_frames
from mrcfa.data.metrics import (
    WINDOWS,
    ConfusionMatrix,
    VideoConsistency,
    mean_consistency,
    pooled_consistency,
)
from mrcfa.errors import counted
from mrcfa.machine.files import fingerprint
from mrcfa.machine.result_cache import ResultCache
from mrcfa.video.feed import prefetched
from mrcfa.video.rounds import Segmenter
from mrcfa.video.segment import in_background


@dataclass(frozen=True)
class EvalOptions:
    """The dataset and the rules of an evaluation."""

    root: Path
    split: str = "val"
    limit: int | None = None
    """Number of videos to evaluate, from the first on; None: all."""
    as_script: bool = False
    """Compute mVC as VSPW's public script does: ignored pixels count, and windows are pooled."""


@dataclass(frozen=True)
class VideoScores:
    """Scores of one video: pixel counts by class, and the scores of its windows by their length."""

    frames: int
    """Number of frames with ground truth."""
    counts: NDArray[np.int64]
    windows: Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True)
class Evaluation:
    """Scores of one bundle. Metrics that the data leaves undefined are NaN."""

    bundle: str
    backend: str
    videos: int
    frames: int
    metrics: Mapping[str, float]
    iou: Mapping[str, float]
    """IoU by class name, for classes that occur in the ground truth or in the prediction."""
    kept: ResultCache | None = field(default=None, compare=False, repr=False)
    """Cached scores of finished videos, until `forget` deletes them."""

    def to_json(self) -> dict[str, Any]:
        shown = {name: value for name, value in asdict(self).items() if name != "kept"}
        return {**shown, "metrics": nulls(self.metrics), "iou": nulls(self.iou)}


def evaluate(
    candidate: Candidate,
    options: EvalOptions,
    advance: Callable[..., None] = lambda **_: None,
) -> Evaluation:
    """Evaluate one candidate. Calls `advance(total=…)` once, then `advance()` after every frame."""
    with candidate.opened() as segmenter:
        videos = labelled_videos(options.root, options.split, segmenter.config.depth)
        videos.check_classes(candidate.path, segmenter.classes)
        clips = videos.clips[: options.limit]
        kept = _kept(candidate, segmenter.backend, options, videos)
        advance(total=sum(len(clip.images) for clip in clips))
        scores = []
        for clip in clips:
            name = _fingerprint(clip)
            known = kept.load(name)
            if known is not None:
                scores.append(_from_bytes(known))
                for _ in clip.images:
                    advance()
            else:
                scores.append(score_video(segmenter, videos, clip, options.as_script, advance))
                kept.save(name, _to_bytes(scores[-1]))
        made = summary(
            str(candidate.path), segmenter.backend, segmenter.classes, scores, options.as_script
        )
        return replace(made, kept=kept)


def forget(done: Evaluation) -> None:
    """Delete the cached scores of a finished evaluation; they are needed only to resume it."""
    if done.kept is not None:
        done.kept.clear()


def score_video(
    segmenter: Segmenter,
    videos: LabelledVideos,
    clip: Clip,
    count_ignored: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> VideoScores:
    """Segment and score one video; reading and scoring run in threads of their own."""
    confusion = ConfusionMatrix(len(segmenter.classes))
    consistency = VideoConsistency(count_ignored=count_ignored)

    def score(prediction: Classes, truth: Classes) -> None:
        confusion.add(prediction, truth)
        if videos.dense:
            consistency.add(prediction, truth)

    segmenter.reset()
    with in_background(score) as put:
        for image, truth in prefetched(labelled_frames(videos, clip)):
            prediction = segmenter(image)
            if truth is not None:
                put(prediction, truth)
            advance()
    windows = {length: consistency.windows(length) for length in WINDOWS}
    return VideoScores(len(clip.masks), confusion.counts, windows)


def summary(
    bundle: str,
    backend: str,
    classes: Sequence[str],
    videos: Sequence[VideoScores],
    as_script: bool = False,
) -> Evaluation:
    """Metrics over all videos; mVC_n is the paper's mean, or with `as_script` pooled by windows."""
    confusion = ConfusionMatrix(len(classes))
    for video in videos:
        confusion.counts += video.counts
    metrics = {
        "mIoU": confusion.mean_iou,
        "WIoU": confusion.weighted_iou,
        "pixel_accuracy": confusion.pixel_accuracy,
    }
    for length in WINDOWS:
        windows = [video.windows[length] for video in videos]
        metrics[f"mVC{length}"] = (
            pooled_consistency(windows, length) if as_script else mean_consistency(windows)
        )
    iou = {name: float(value) for name, value in zip(classes, confusion.iou, strict=True)}
    iou = {name: value for name, value in iou.items() if not math.isnan(value)}
    frames = sum(video.frames for video in videos)
    return Evaluation(bundle, backend, len(videos), frames, metrics, iou)


def report(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """The evaluations as JSON data; with two, `difference` is the first minus the second."""
    content: dict[str, Any] = {"evaluations": [done.to_json() for done in evaluations]}
    if len(evaluations) == 2:
        first, second = (done.metrics for done in evaluations)
        content["difference"] = nulls({name: first[name] - second[name] for name in first})
    return content


def table(evaluations: Sequence[Evaluation]) -> str:
    """Text table of metrics and IoU by class, in percent; with two bundles also the difference."""
    first = evaluations[0]
    names = list(dict.fromkeys(name for done in evaluations for name in done.iou))
    blocks = (
        [[done.metrics[name] for done in evaluations] for name in first.metrics],
        [[done.iou.get(name, math.nan) for done in evaluations] for name in names],
    )
    rows = [["", *(done.bundle for done in evaluations)]]
    rows += [["backend", *(done.backend for done in evaluations)]]
    for labels, block in zip((first.metrics, names), blocks, strict=True):
        rows += [
            [label.replace("_", " "), *map(percent, row)]
            for label, row in zip(labels, block, strict=True)
        ]
    if len(evaluations) == 2:
        changes = (f"{100 * (row[0] - row[1]):+.2f}" for block in blocks for row in block)
        for row, change in zip(rows, ["difference", "", *changes], strict=True):
            row.append(change.replace("+nan", "–"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row[1:], widths[1:])) for row in rows]
    lines = [f"{row[0]:{widths[0]}}  {line}" for row, line in zip(rows, lines, strict=True)]
    lines.insert(2 + len(first.metrics), "IoU of each class")
    what = f"{counted(first.videos, 'video')}, {counted(first.frames, 'annotated frame')}"
    return "\n".join([what, *lines])


def _kept(
    candidate: Candidate, backend: str, options: EvalOptions, videos: LabelledVideos
) -> ResultCache:
    """Cache of finished videos for exactly this candidate and these options."""
    made_from = fingerprint(
        mrcfa.__version__,
        candidate.identity,
        candidate.cold_start,
        backend,
        options.root.resolve(),
        options.split,
        options.as_script,
        videos.labels,
        videos.dense,
    )
    return ResultCache("eval", made_from)


def _fingerprint(clip: Clip) -> str:
    """Hash that changes when any file of the clip changes."""
    stats = {path: path.stat() for path in (*clip.images, *clip.masks.values())}
    return fingerprint(
        clip.name, [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
    )


def _to_bytes(scores: VideoScores) -> bytes:
    arrays: dict[str, Any] = {"frames": scores.frames, "counts": scores.counts}
    arrays |= {str(length): values for length, values in scores.windows.items()}
    file = BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _from_bytes(content: bytes) -> VideoScores:
    with np.load(BytesIO(content)) as kept:
        windows = {length: kept[str(length)] for length in WINDOWS}
        return VideoScores(int(kept["frames"]), kept["counts"], windows)


def percent(share: float | None) -> str:
    return "–" if share is None or math.isnan(share) else f"{100 * share:.2f}"


def nulls(values: Mapping[str, float]) -> dict[str, float | None]:
    """The values with None in place of NaN, which JSON lacks."""
    return {name: None if math.isnan(value) else value for name, value in values.items()}

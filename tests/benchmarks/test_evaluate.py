"""Evaluation with segmenters whose scores are known, and of real bundles on the sample."""

import json

import numpy as np
import pytest
from naming import naming
from PIL import Image
from small_vspw import scene, write_vspw

from mrcfa.backends.records import ColdStart
from mrcfa.benchmarks import evaluate as evaluation
from mrcfa.benchmarks.candidate import Candidate
from mrcfa.benchmarks.evaluate import (
    EvalOptions,
    evaluate,
    forget,
    report,
    score_video,
    summary,
    table,
)
from mrcfa.data.datasets import labelled_videos
from mrcfa.data.metrics import IGNORED, ConfusionMatrix, VideoConsistency
from mrcfa.data.vspw import VSPW
from mrcfa.errors import Mismatch, Unsupported

SIZE = (96, 160)
FRAMES = 18
CLASSES = VSPW.labels.names


class Answers:
    """A segmenter that gives prepared masks, from the first again after each reset."""

    classes = CLASSES
    palette = np.zeros((len(CLASSES), 3), np.uint8)

    def __init__(self, masks):
        self.masks = masks

    def __call__(self, frame):
        return next(self.waiting)

    def reset(self):
        self.waiting = iter(self.masks)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset") / "sample"
    write_vspw(folder, videos=2, frames=FRAMES, size=SIZE)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mrcfa" / "eval"


def truths(seed=0):
    """Classes of the sample's video; what is ignored stands as class 0 in a prediction."""
    return np.array([mask.clip(1) - 1 for _, mask in scene(FRAMES, SIZE, seed)])


def scored(sample, masks, **options):
    videos = labelled_videos(sample, "val", reach=9)
    scores = score_video(Answers(masks), videos, videos.clips[0], **options)
    return summary("a bundle", "a backend", CLASSES, [scores])


def test_a_prediction_equal_to_the_truth_scores_one(sample):
    result = scored(sample, truths())
    assert set(result.metrics.values()) == {1.0}
    assert (result.videos, result.frames) == (1, FRAMES)
    assert "sky" in result.iou
    assert "cat" not in result.iou


def test_a_prediction_that_is_wrong_everywhere_scores_zero(sample):
    metrics = scored(sample, (truths() + 1) % len(CLASSES)).metrics
    assert [metrics[name] for name in ("mIoU", "WIoU", "pixel_accuracy")] == [0, 0, 0]
    assert metrics["mVC8"] > 0.9  # as steady as the truth, but for the patch without one


def test_scores_are_those_of_the_metrics_fed_with_the_same_masks(sample):
    masks = np.roll(truths(), 3, axis=2)
    confusion, consistency = ConfusionMatrix(len(CLASSES)), VideoConsistency()
    for prediction, (_, raw) in zip(masks, scene(FRAMES, SIZE, 0), strict=True):
        truth = np.where(raw == 0, IGNORED, raw - 1)
        confusion.add(prediction, truth)
        consistency.add(prediction, truth)
    metrics = scored(sample, masks).metrics
    assert metrics["mIoU"] == confusion.mean_iou
    assert metrics["WIoU"] == confusion.weighted_iou
    assert metrics["mVC16"] == consistency.score(16)


@pytest.fixture
def cityscapes(tmp_path):
    """One sequence of 20 frames; the last is annotated, and a car all over."""
    root = tmp_path / "cityscapes"
    for frame in range(20):
        path = root / f"leftImg8bit_sequence/val/ulm/ulm_000000_{frame:06d}_leftImg8bit.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 4)).save(path)
    mask = root / "gtFine/val/ulm/ulm_000000_000019_gtFine_labelIds.png"
    mask.parent.mkdir(parents=True)
    Image.new("L", (8, 4), 26).save(mask)
    return root


def test_cityscapes_scores_the_annotated_frame_after_showing_those_before(cityscapes):
    videos = labelled_videos(cityscapes, "val", reach=6)
    wrong, car = np.zeros((4, 8), np.uint8), np.full((4, 8), 13, np.uint8)
    scores = score_video(Answers([wrong] * 6 + [car]), videos, videos.clips[0])
    result = summary("b", "c", CLASSES, [scores])
    assert result.frames == 1
    assert result.metrics["mIoU"] == 1
    assert np.isnan(result.metrics["mVC8"])
    assert report([result])["evaluations"][0]["metrics"]["mVC8"] is None


@pytest.mark.parametrize(
    ("mask", "things"),
    [
        (np.ones((4, 5), np.uint8), ["4×5", "96×160"]),
        (np.full(SIZE, 200, np.uint8), ["value 200", "labels"]),
    ],
)
def test_a_mask_that_does_not_fit_is_named(tmp_path, mask, things):
    write_vspw(tmp_path / "sample", videos=1, frames=4, size=SIZE)
    path = tmp_path / "sample" / "data" / "sample_0" / "mask" / "00000002.png"
    Image.fromarray(mask).save(path)
    with pytest.raises(Mismatch, match=naming(path, *things)):
        scored(tmp_path / "sample", truths()[:4])


def test_a_bundle_is_evaluated_over_all_videos(sample, bundle):
    advanced = []
    result = evaluate(
        Candidate(bundle("b0")), EvalOptions(sample), lambda **told: advanced.append(told)
    )
    assert (result.videos, result.frames) == (2, 2 * FRAMES)
    assert result.backend.startswith("onnxruntime")
    assert all(0 <= value <= 1 for value in result.metrics.values())
    assert advanced == [{"total": 2 * FRAMES}] + [{}] * 2 * FRAMES


def test_an_interrupted_evaluation_goes_on_where_it_stopped(sample, bundle, cache, monkeypatch):
    whole = evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(sample))
    forget(whole)
    seen = []

    def interrupted(segmenter, videos, clip, *rest):
        seen.append(clip.name)
        if seen == ["sample_0", "sample_1"]:
            raise KeyboardInterrupt
        return score_video(segmenter, videos, clip, *rest)

    monkeypatch.setattr(evaluation, "score_video", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(sample))
    resumed = evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(sample))
    assert seen == ["sample_0", "sample_1", "sample_1"]
    assert resumed == whole
    forget(resumed)
    assert not any(cache.iterdir())


@pytest.mark.parametrize("state", ["in the way", "damaged"])
def test_a_cache_that_cannot_be_used_does_not_end_an_evaluation(
    state, sample, bundle, cache, capsys
):
    def evaluated():
        return evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(sample, limit=1))

    if state == "damaged":
        evaluated()
        for path in cache.glob("*/*"):
            path.write_bytes(b"damaged")
    else:
        cache.parent.mkdir(parents=True)
        cache.write_text("a file where the cache should be")
    assert evaluated().videos == 1
    assert str(cache) in capsys.readouterr().err


def test_a_video_that_changed_meanwhile_is_evaluated_anew(tmp_path, bundle, monkeypatch):
    write_vspw(tmp_path / "sample", videos=1, frames=3, size=SIZE)
    before = evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(tmp_path / "sample"))
    mask = tmp_path / "sample" / "data" / "sample_0" / "mask" / "00000000.png"
    Image.fromarray(np.zeros(SIZE, np.uint8)).save(mask)
    after = evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(tmp_path / "sample"))
    assert after.metrics != before.metrics


def test_the_first_videos_alone_can_be_asked_for(sample, bundle):
    assert (
        evaluate(Candidate(bundle("b0"), "onnxruntime"), EvalOptions(sample, limit=1)).videos == 1
    )


def test_the_public_script_counts_ignored_pixels_and_pools(sample):
    videos = labelled_videos(sample, "val", reach=9)
    masks = np.roll(truths(), 3, axis=2)
    scores = [
        score_video(Answers(masks), videos, clip, count_ignored=True) for clip in videos.clips
    ]
    result = summary("a bundle", "a backend", CLASSES, scores, as_script=True)
    expected = []
    for clip in videos.clips:
        raw = np.array([videos.truth(clip.masks[path]) for path in clip.images])
        for first in range(FRAMES - 16):
            part, guess = raw[first : first + 16], masks[first : first + 16]
            still = (part == part[0]).all(0)
            expected.append((still & (guess == guess[0]).all(0)).sum() / still.sum())
    assert result.metrics["mVC16"] == pytest.approx(np.mean(expected))


def test_a_single_frame_cold_start_answers_the_first_frames_differently(tmp_path, bundle):
    write_vspw(tmp_path / "sample", videos=1, frames=2, size=SIZE)
    stream = evaluate(Candidate(bundle("b0"), "eager"), EvalOptions(tmp_path / "sample"))
    cold = Candidate(bundle("b0"), cold_start=ColdStart.SINGLE)
    single = evaluate(cold, EvalOptions(tmp_path / "sample"))
    assert single.backend == stream.backend
    assert single.metrics != stream.metrics


def test_a_cold_start_that_a_backend_lacks_is_refused(sample, bundle):
    with pytest.raises(Unsupported, match=naming("--cold-start single", "--backend eager")):
        evaluate(Candidate(bundle("b0"), "onnxruntime", ColdStart.SINGLE), EvalOptions(sample))


def test_a_bundle_of_another_dataset_is_refused(cityscapes, bundle):
    with pytest.raises(Mismatch, match=naming(bundle("b0"), "124 classes", "cityscapes", 19)):
        evaluate(Candidate(bundle("b0"), "auto"), EvalOptions(cityscapes))


def two_results(sample):
    good = scored(sample, truths())
    rough = scored(sample, np.where(np.arange(160) < 20, 0, truths()).astype(np.uint8))
    return [rough, good]


def test_two_bundles_are_compared_by_their_difference(sample):
    rough, good = two_results(sample)
    difference = report([rough, good])["difference"]
    assert difference["mIoU"] == rough.metrics["mIoU"] - 1 < 0
    assert "difference" not in report([good])
    json.dumps(report([rough, good]), allow_nan=False)


def test_the_table_shows_percentages_of_metrics_and_classes(sample):
    rough, good = two_results(sample)
    lines = {line.split("  ")[0]: line.split() for line in table([rough, good]).splitlines()}
    assert lines["mIoU"][-2] == "100.00"
    assert lines["mIoU"][-1] == f"{100 * (rough.metrics['mIoU'] - 1):+.2f}"
    assert lines["sky"][-2] == "100.00"
    assert lines["wall"][1:] == ["0.00", "–", "–"]  # only the rough prediction has a wall
    assert "difference" not in table([good])

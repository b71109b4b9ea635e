"""Metrics against cases worked out by hand, and against the formulas written out in full."""

import numpy as np
import pytest
from naming import naming

from mrcfa.data.metrics import (
    IGNORED,
    ConfusionMatrix,
    VideoConsistency,
    mean_consistency,
    pooled_consistency,
)
from mrcfa.errors import InvalidValue, Mismatch


def confusion(prediction, truth, classes=3) -> ConfusionMatrix:
    matrix = ConfusionMatrix(classes)
    matrix.add(np.array(prediction, np.uint8), np.array(truth, np.uint8))
    return matrix


def consistency(predictions, truths, **options) -> VideoConsistency:
    video = VideoConsistency(**options)
    for prediction, truth in zip(predictions, truths, strict=True):
        video.add(np.array(prediction, np.uint8), np.array(truth, np.uint8))
    return video


def random_video(frames, seed, size=(6, 7), classes=4):
    """Labels that mostly stay as they are, some of the truth ignored."""
    random = np.random.default_rng(seed)
    masks = [random.integers(0, classes, size)]
    for _ in range(frames - 1):
        changed = random.random(size) < 0.08
        masks.append(np.where(changed, random.integers(0, classes, size), masks[-1]))
    return np.array(masks, np.uint8)


def test_iou_of_a_case_worked_out_by_hand():
    # Class 0: 2 hits, 1 missed. Class 1: 1 hit, 1 stolen from 0. Class 2: 1 hit, 1 missed to 1.
    matrix = confusion([[0, 0, 1], [1, 1, 2]], [[0, 0, 0], [1, 2, 2]])
    assert matrix.iou.tolist() == [2 / 3, 1 / 3, 1 / 2]
    assert matrix.mean_iou == pytest.approx(1 / 2)
    assert matrix.weighted_iou == pytest.approx(3 / 6 * 2 / 3 + 1 / 6 * 1 / 3 + 2 / 6 * 1 / 2)
    assert matrix.pixel_accuracy == pytest.approx(4 / 6)


def test_scores_agree_with_sets_of_pixels():
    truth, prediction = random_video(5, seed=1), random_video(5, seed=2)
    truth[np.random.default_rng(3).random(truth.shape) < 0.2] = IGNORED
    matrix = ConfusionMatrix(4)
    for frame in range(5):
        matrix.add(prediction[frame], truth[frame])
    known = truth != IGNORED
    expected = [
        ((truth == k) & (prediction == k)).sum()
        / (known & ((truth == k) | (prediction == k))).sum()
        for k in range(4)
    ]
    np.testing.assert_allclose(matrix.iou, expected)
    assert matrix.pixel_accuracy == pytest.approx((truth == prediction)[known].mean())


def test_ignored_pixels_count_nowhere():
    assert confusion([[0, 1, 2]], [[0, IGNORED, IGNORED]]).counts.sum() == 1
    assert confusion([[0, 1, 2]], [[0, IGNORED, IGNORED]]).mean_iou == 1


def test_a_class_in_neither_truth_nor_prediction_is_left_out_of_the_mean():
    matrix = confusion([[0, 0]], [[0, 0]])
    assert matrix.mean_iou == 1
    assert np.isnan(matrix.iou[1:]).all()


def test_a_class_that_is_predicted_but_never_true_counts_as_zero():
    assert confusion([[0, 1]], [[0, 0]], classes=2).mean_iou == pytest.approx((1 / 2 + 0) / 2)


def test_a_perfect_prediction_scores_one_and_an_all_wrong_one_zero():
    truth = random_video(1, seed=4)[0]
    perfect, wrong = confusion(truth, truth, 4), confusion((truth + 1) % 4, truth, 4)
    assert perfect.mean_iou == perfect.weighted_iou == perfect.pixel_accuracy == 1
    assert wrong.mean_iou == wrong.weighted_iou == wrong.pixel_accuracy == 0


def test_without_labelled_pixels_there_is_no_score():
    matrix = confusion([[0, 1]], [[IGNORED, IGNORED]])
    assert np.isnan([matrix.mean_iou, matrix.weighted_iou, matrix.pixel_accuracy]).all()


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(InvalidValue, match=naming("truth", 3, 2, IGNORED)):
        confusion([[0, 1]], [[0, 3]])


def test_masks_of_different_sizes_are_refused():
    with pytest.raises(Mismatch, match=naming("prediction", "1×2", "truth", "2×1")):
        confusion([[0, 1]], [[0], [1]])


def test_consistency_of_a_case_worked_out_by_hand():
    # Windows of two frames: pixels 0 1 2 hold still in the truth, then 0 1; the prediction
    # holds 0 and 2, then 1 alone.
    truths = [[[0, 1, 2, 0]], [[0, 1, 2, 1]], [[0, 1, 0, 2]]]
    predictions = [[[0, 1, 2, 0]], [[0, 2, 2, 0]], [[1, 2, 2, 0]]]
    video = consistency(predictions, truths, lengths=(2,))
    assert video.windows(2).tolist() == [2 / 3, 1 / 2]
    assert video.score(2) == pytest.approx((2 / 3 + 1 / 2) / 2)


@pytest.mark.parametrize("count_ignored", [False, True])
@pytest.mark.parametrize("length", [1, 8, 16])
def test_consistency_agrees_with_the_formula_written_out(length, count_ignored):
    truth, prediction = random_video(20, seed=5), random_video(20, seed=6)
    truth[:, :2] = IGNORED
    truth[7, 3] = IGNORED
    video = consistency(prediction, truth, lengths=(length,), count_ignored=count_ignored)
    expected = []
    for first in range(20 - length + 1):
        part, guess = truth[first : first + length], prediction[first : first + length]
        still = (part == part[0]).all(0) & (count_ignored | (part != IGNORED).all(0))
        expected.append((still & (guess == guess[0]).all(0)).sum() / still.sum())
    np.testing.assert_allclose(video.windows(length), expected)


def test_a_prediction_equal_to_the_truth_is_wholly_consistent():
    truth = random_video(20, seed=7)
    assert consistency(truth, truth).score(8) == consistency(truth, truth).score(16) == 1


def test_a_prediction_that_is_wrong_but_steady_is_consistent():
    truth = np.zeros((9, 2, 2), np.uint8)
    assert consistency(truth + 1, truth).score(8) == 1


def test_a_prediction_that_always_changes_is_not_consistent():
    truth = np.zeros((9, 2, 2), np.uint8)
    flicker = truth + np.arange(9, dtype=np.uint8)[:, None, None] % 2
    assert consistency(flicker, truth).score(8) == 0


def test_a_video_shorter_than_a_window_has_no_score():
    video = consistency([[[0]]], [[[0]]])
    assert video.windows(8).size == 0
    assert np.isnan(video.score(8))


def test_windows_without_still_pixels_are_left_out():
    truths = [[[0, IGNORED]], [[1, IGNORED]], [[1, IGNORED]]]
    video = consistency(truths, truths, lengths=(2,))
    np.testing.assert_equal(video.windows(2), [np.nan, 1])
    assert video.score(2) == 1


def test_frames_of_another_size_are_no_part_of_the_video():
    video = consistency([[[0, 1]]], [[[0, 1]]])
    with pytest.raises(Mismatch, match=naming("2×1", "1×2")):
        video.add(np.zeros((2, 1), np.uint8), np.zeros((2, 1), np.uint8))


def test_the_paper_averages_windows_and_then_videos():
    videos = [np.array([1.0, 0.0]), np.array([0.2]), np.array([np.nan]), np.array([])]
    assert mean_consistency(videos) == pytest.approx((0.5 + 0.2) / 2)


def test_the_public_script_pools_windows_of_long_videos_without_their_last():
    long, short = np.arange(10, dtype=float), np.zeros(9)  # 17 and 16 frames when n is 8
    assert pooled_consistency([long, short], 8) == pytest.approx(np.arange(9).mean())
    assert np.isnan(pooled_consistency([short], 8))

"""The paper's constants, and the learning rate over time."""

import pytest

from mrcfa.errors import MrcfaError
from mrcfa.training.recipe import Recipe


def test_the_defaults_are_the_papers():
    recipe = Recipe()
    assert (recipe.iterations, recipe.batch, recipe.crop) == (160_000, 8, (480, 480))
    assert (recipe.learning_rate, recipe.head_factor, recipe.weight_decay) == (6e-5, 10, 0.01)


def test_the_rate_warms_up_linearly_and_decays_to_nothing():
    recipe = Recipe()
    assert recipe.learning_rate_at(0) == pytest.approx(1e-6)
    assert recipe.learning_rate_at(750) == pytest.approx(0.5 * (1 - 750 / 160_000), rel=1e-4)
    assert recipe.learning_rate_at(1500) == pytest.approx(1 - 1500 / 160_000)
    assert recipe.learning_rate_at(80_000) == pytest.approx(0.5)
    assert recipe.learning_rate_at(159_999) == pytest.approx(1 / 160_000)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"iterations": 0}, "train nothing"),
        ({"batch": 0}, "train nothing"),
        ({"learning_rate": 0.0}, "must be above 0"),
        ({"learning_rate": float("nan")}, "must be above 0"),
        ({"crop": (100, 160)}, "multiples of 32 from 64"),
        ({"crop": (32, 160)}, "multiples of 32 from 64"),
    ],
)
def test_what_cannot_train_is_one_sentence(changes, says):
    with pytest.raises(MrcfaError, match=says):
        Recipe(**changes)

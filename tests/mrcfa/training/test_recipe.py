"""The paper's constants, and the learning rate over time."""

import pytest
from naming import naming

from mrcfa.errors import InvalidValue
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
    ("changes", "things"),
    [
        ({"iterations": 0}, ("iterations", 0)),
        ({"batch": 0}, ("batch", 0)),
        ({"learning_rate": 0.0}, ("learning rate", 0)),
        ({"learning_rate": float("nan")}, ("learning rate", "nan")),
        ({"crop": (100, 160)}, ("crop", "100x160", 32, 64)),
        ({"crop": (32, 160)}, ("crop", "32x160", 32, 64)),
    ],
)
def test_what_cannot_train_is_one_sentence(changes, things):
    with pytest.raises(InvalidValue, match=naming(*things)):
        Recipe(**changes)

"""What may be searched, and what is refused before any work is done."""

import pytest

from fairmf.control.search_space import Choice, Doubling, Range, default_space, read_space
from fairmf.errors import InvalidParameter
from fairmf.models.als import IALS, FairALS

optuna = pytest.importorskip("optuna", reason='needs the tune extra: pip install "fairmf[tune]"')


def test_parts_draw_and_translate():
    doubling = Doubling(16, 300)
    assert [doubling.value(k) for k in range(doubling.steps + 1)] == [16, 32, 64, 128, 256]
    assert doubling.distribution(optuna) == optuna.distributions.IntDistribution(0, 4)
    assert [doubling.drawn(x) for x in (16, 256, 100, 512)] == [0, 4, None, None]
    assert Doubling(3, 3).steps == 0
    weight = Range(0.1, 10)
    assert weight.distribution(optuna) == optuna.distributions.FloatDistribution(0.1, 10, log=True)
    assert [weight.drawn(x) for x in (0.1, 3, 11, None)] == [0.1, 3, None, None]
    whole = Range(2, 9, log=False, integer=True)
    assert whole.distribution(optuna) == optuna.distributions.IntDistribution(2, 9)
    assert whole.value(4.0) == 4
    word = Choice(("cholesky", "eigenbasis_cg"))
    assert (word.drawn("cholesky"), word.drawn("gradient")) == ("cholesky", None)


def test_the_default_space_fits_the_model_and_the_question():
    alone = default_space(IALS(), several=False)
    assert set(alone) == {
        "regularization", "regularization_exponent", "unobserved_weight", "item_balance", "user_balance", "factors"
    }  # fmt: skip
    for model in (IALS(), FairALS()):
        several = default_space(model, several=True)
        assert list(several) == [*alone, "evenness"]  # neither fairness nor the dial: they do not move the front
        assert several["evenness"].drawn(0.0) == 0.0
    assert alone["unobserved_weight"] == Range(1e-4, 1)
    assert 1.0 in alone["regularization_exponent"].values
    for model in (IALS(), FairALS()):  # so that the first trial has the model's own settings
        space = default_space(model, several=False)
        assert all(part.drawn(getattr(model, name)) is not None for name, part in space.items())
    assert read_space(None, IALS(), several=False) == default_space(IALS(), several=False)


def test_short_forms():
    found = read_space({"regularization": (0.1, 1), "solver": ["cholesky"], "dial": [0, 1.5]}, IALS(), several=False)
    assert found == {"regularization": Range(0.1, 1), "solver": Choice(("cholesky",)), "dial": Choice((0, 1.5))}


@pytest.mark.parametrize(
    ("space", "match"),
    [
        ({}, "'space' parameter of tune is empty"),
        ({"fairness": (0.1, 1)}, "names 'fairness', which IALS does not have"),
        ({"regularization": (1, 0.1)}, "low must be a number below high"),
        ({"regularization": (0, 1)}, "low must be > 0 on a logarithmic scale"),
        ({"regularization": ("a", "b")}, "low must be a number below high"),
        ({"regularization": 0.1}, r"must be \(low, high\), a list of values"),
        ({"regularization": Range(-1, 1, log=False)}, "'regularization' parameter of IALS must be a number >= 0"),
        ({"epochs": Range(1.5, 3, integer=True)}, "integer ends"),
        ({"epochs": (1, 3)}, "'epochs' parameter of IALS must be an integer >= 1. Got 1.0"),
        ({"factors": Doubling(8, 4)}, "1 <= low <= high"),
        ({"factors": Doubling(0, 4)}, "1 <= low <= high"),
        ({"solver": []}, "at least one value"),
        ({"solver": ["guess"]}, "'solver' parameter of IALS"),
        ({"dial": (0.1, 1), "evenness": (0.1, 1)}, "both 'dial' and 'evenness'"),
        ({"evenness": [0.5, 2]}, "'evenness' parameter of the search space must be a number >= 0 and <= 1. Got 2"),
        ({"dial": [-1]}, "'dial' parameter of the search space must be a number >= 0. Got -1"),
        ({"dial": ["much"]}, "'dial' parameter of the search space must be a number >= 0"),
    ],
)
def test_wrong_spaces(space, match):
    with pytest.raises(InvalidParameter, match=match):
        read_space(space, IALS(), several=False)

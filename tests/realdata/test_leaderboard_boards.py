"""The boards that are stored beside the checkout: published sizes, and validation parts apart from the test."""

import pytest
from conftest import real_file

from fairmf.leaderboards import boards

pytestmark = pytest.mark.realdata


@pytest.mark.parametrize(
    ("name", "file", "sizes"),
    [
        ("gowalla", "gowalla.npz", (29_858, 40_981, 810_128, 217_242)),
        ("ml-1m", "ml-1m-split.npz", (4_034, 3_468, 388_246, 18_555)),
    ],
)
def test_a_board_has_the_published_sizes(name, file, sizes, monkeypatch):
    monkeypatch.setenv(boards.VARIABLE, str(real_file(file).parent))
    board = boards.load_board(name)
    train = board.train
    assert (train.n_users, train.n_items, train.nnz, board.test.targets.nnz) == sizes
    if name == "gowalla":
        assert board.recall == "hits / |T|"
        assert board.chosen_on.nnz == pytest.approx(0.8 * train.nnz, rel=0.01)
        assert board.validation.n_users == boards.SCORED

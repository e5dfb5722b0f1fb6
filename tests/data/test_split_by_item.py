"""Test splits that hold out whole items."""

import numpy as np
import pytest

from fairmf import Split, split_by_item, synthetic
from fairmf.errors import InvalidData, InvalidParameter


@pytest.fixture(scope="module")
def data():
    return synthetic(n_users=80, n_items=60, n_interactions=1500)


def test_cold_items_are_in_one_part_alone_and_everything_is_somewhere(data, tmp_path):
    split = split_by_item(data, cold_share=0.2, target_share=0.1, random_state=3)
    train = split.train.to_csr().toarray()
    parts = [part.targets.to_csr().toarray() for part in (split.validation, split.test)]
    assert split.train.n_items == 60
    cold = [set(np.flatnonzero((train.sum(axis=0) == 0) & (held.sum(axis=0) > 0))) for held in parts]
    assert [len(items) for items in cold] == [12, 12]
    assert not cold[0] & cold[1]
    whole = data.to_csr().toarray()
    order = [data.user_ids.position(x) for x in split.train.user_ids.values.tolist()]
    columns = [data.item_ids.position(x) for x in split.train.item_ids.values.tolist()]
    np.testing.assert_array_equal(train + parts[0] + parts[1], whole[order][:, columns])
    warm = sorted(set(range(60)) - cold[0] - cold[1])
    for held in parts:
        share = held[:, warm].sum() / whole[order][:, columns][:, warm].sum()
        assert share == pytest.approx(0.1, abs=0.03)
    again = split_by_item(data, cold_share=0.2, target_share=0.1, random_state=3)
    assert again.train.fingerprint() == split.train.fingerprint()
    assert split_by_item(data, random_state=4).train.fingerprint() != split_by_item(data).train.fingerprint()
    split.save(tmp_path / "split")
    assert Split.load(tmp_path / "split").method == "by_item"


def test_errors(data):
    with pytest.raises(InvalidParameter, match="'cold_share' parameter of split_by_item is held out twice"):
        split_by_item(data, cold_share=0.5)
    with pytest.raises(InvalidData, match="less than one item"):
        split_by_item(data, cold_share=0.001)

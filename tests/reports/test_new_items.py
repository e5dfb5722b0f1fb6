"""Test what audits and reports say about items without interactions in training, beside a loop over lists."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from small_report import data_of, text_of

from fairmf import IALS, HeldOut, Interactions, audit, calibrate, report, split_by_item, split_by_user, synthetic

K = 10


def data():
    return synthetic(n_users=200, n_items=80, n_interactions=3500)


@pytest.fixture(scope="module")
def split():
    return split_by_item(data(), cold_share=0.1)


@pytest.fixture(scope="module")
def model(split):
    # Features that say something: vectors learned from all interactions, and noise.
    everything = IALS(factors=6, epochs=4).fit(data(), progress=False).item_factors
    noise = np.random.default_rng(2).normal(scale=everything.std(), size=everything.shape)
    fitted = IALS(factors=6, epochs=4).fit(split.train, item_features=everything + noise, progress=False)
    calibrate(fitted, split, at=K, progress=False)
    return fitted


def shares(model, split, **options):
    """Count the places of cold items in all lists, one by one."""
    had = np.bincount(split.train.by_user.indices, minlength=80)
    cold = places = 0
    for _, lists in model.rank(split.test.fold_in, K, known_users=True, **options):
        for item in lists.ravel().tolist():
            places += item >= 0
            cold += item >= 0 and had[item] == 0
    return int((had == 0).sum()), cold / places


def test_an_audit_tells_how_many_items_are_new_and_what_they_get(model, split):
    ends = {"before_options": {"evenness": 0.0}, "after_options": {"evenness": 1.0}}
    found = audit(model, model, split, at=K, bootstrap=30, **ends)
    n_cold, before = shares(model, split, evenness=0.0)
    after = shares(model, split, evenness=1.0)[1]
    assert (found.cold.n_cold, found.cold.n_items, found.cold.of_catalogue) == (n_cold, 80, 0.2)
    assert (found.cold.share.before, found.cold.share.after) == pytest.approx((before, after))
    assert after < before  # on these small data cold items have most of the exposure already
    assert found.cold.share.low <= found.cold.share.difference <= found.cold.share.high
    told = (
        f"The 16 items without interactions in training are 20.0% of the catalogue and get {after:.1%} of the exposure"
    )
    assert f"{told}, down from {before:.1%}" in found.summary()
    stored = json.loads(found.to_json())["cold"]
    assert stored["n_items"] == 16
    assert stored["catalogue_share"] == 0.2
    assert stored["share"]["after"] == pytest.approx(after)
    assert stored["recall"]["before"] == found[f"cold_recall@{K}"].before
    assert list(found.per_user.before) == [f"ndcg@{K}", f"recall@{K}"]


def test_without_held_out_items_or_features_nothing_is_said(model, split):
    plain = IALS(factors=4, epochs=2).fit(split.train, progress=False)
    users = split_by_user(synthetic(200, 60, 3000), heldout=30, protocol="seeded")
    other = IALS(factors=4, epochs=2).fit(users.train, progress=False)
    found = audit(other, other, users, after_options={"evenness": 0.5}, bootstrap=0)
    assert found.cold is None
    assert "without interactions" not in found.summary()
    assert "cold" not in found.to_dict()
    assert audit(plain, model, split, at=K, bootstrap=0).cold is not None  # items are held out


def test_a_report_has_a_section_along_the_calibrated_path(model, split, tmp_path):
    path = report(model, split, tmp_path / "report.html", at=K, evenness=[0, 0.3, 1], examples=0, bootstrap=20)
    page = path.read_text(encoding="utf-8")
    assert '<a href="#cold">New items</a>' in page
    section = text_of(page.partition('<section id="cold"')[2].partition("</section>")[0])
    assert "16 of 80 items (20.0% of the catalogue)" in section
    for evenness in (0.0, 0.3, 1.0):
        share = shares(model, split, evenness=evenness)[1]
        assert f" {evenness:g} {share:.1%} " in section
        assert f" {share / 0.2:.2f} " in section
    share = shares(model, split, evenness=0.3)[1]
    told = "At evenness 0.3, the 16 items without interactions in training are 20.0% of the catalogue and get"
    assert f"{told} {share:.1%}" in section
    assert f"cold_share@{K}" in data_of(page)["positions"][0]["values"]


def test_features_alone_are_enough(model, split):
    """No cold item is held out, but the model has features: launch day."""
    had = np.bincount(split.train.by_user.indices, minlength=80)
    targets = sp.csr_array(split.test.targets.to_csr().multiply(had > 0))
    targets.eliminate_zeros()
    ids = {"user_ids": split.train.user_ids.values, "item_ids": split.train.item_ids.values}
    held_out = HeldOut(split.train, Interactions.from_csr(targets, **ids), True)
    options = {"train": split.train, "at": K, "after_options": {"evenness": 1.0}, "bootstrap": 0}
    found = audit(model, model, held_out, **options)
    assert found.cold.share.after == pytest.approx(shares(model, split, evenness=1.0)[1])
    assert found.cold.recall is None
    plain = IALS(factors=4, epochs=2).fit(split.train, progress=False)
    assert audit(plain, plain, held_out, **options).cold is None

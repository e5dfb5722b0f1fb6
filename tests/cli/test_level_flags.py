"""--evenness, --flatten, --discount and --fairness mean the same on every verb, and what the formula says."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from running import write_events

from fairmf import FairALS, Level, Split, audit, calibrate, evaluate, load_model
from fairmf.cli.app import load_verb
from fairmf.models.auto_settings import CHOSEN

VERBS = {
    "recommend": ("recommend", "no-such.fairmf"),
    "evaluate": ("evaluate", "no-such.fairmf", "no-split"),
    "rerank": ("rerank", "no-such.fairmf", "-o", "l.csv"),
    "export": ("export", "no-such.fairmf", "-o", "i.parquet"),
    "audit": ("audit", "no-such.fairmf", "no-split"),
}
"""Every verb that answers with a model at one level. tradeoff, target and report go through many."""
EXPERT = {"flatten": 0.4, "discount": 0.3, "fairness": 2.0}


def sides(verb):
    return ("before-", "after-") if verb == "audit" else ("",)


@pytest.fixture(scope="module")
def calibrated(made, tmp_path_factory):
    model = load_model(made / "model.fairmf")
    calibrate(model, Split.load(made / "split"), at=10, quality="ndcg@20", bootstrap=0, progress=False)
    path = tmp_path_factory.mktemp("calibrated") / "c.fairmf"
    model.save(path)
    return path


def scores_by_hand(model, fairness, g, h):
    """The scores of all training users and items at a level, by the formula and in double precision."""
    turned = model if fairness is None else model.with_fairness(fairness)
    U, V = model.user_factors.astype(float), model.item_factors.astype(float)
    plain = U @ V.T
    spread, f = plain.std(axis=0), np.diff(model.fitted.interactions.by_item.indptr)
    S, logs = (plain / spread**g).std(), np.log(np.maximum(f, 1))
    return turned.user_factors.astype(float) @ V.T / spread**g - h * S * (logs - logs.mean())


def unseen(model, scores):
    """The scores, without those of items that a user has."""
    rows = model.fitted.interactions.by_user
    left = scores.copy()
    left[np.repeat(np.arange(len(left)), np.diff(rows.indptr)), rows.indices] = -np.inf
    return left


def assert_best(model, lists, scores):
    """Check that each list holds the items of the highest scores, best first. Some items have equal vectors: ties."""
    columns = np.array([[model.fitted.item_ids.position(item) for item in row] for row in lists.tolist()])
    found = np.take_along_axis(scores, columns, axis=1)
    best = -np.sort(-scores, axis=1)[:, : lists.shape[1]]
    np.testing.assert_allclose(found, best, rtol=1e-4, atol=1e-5)
    assert all(len({*row}) == len(row) for row in columns.tolist())


# -- the flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_flags(verb):
    flags = {flag for parameter in load_verb(verb).params for flag in parameter.opts}
    for side in sides(verb):
        assert {f"--{side}{name}" for name in ("evenness", *EXPERT)} <= flags


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("other", EXPERT)
def test_evenness_with_a_strength_of_its_own_is_refused_before_anything_is_read(fairmf, verb, other):
    for side in sides(verb):
        done = fairmf(*VERBS[verb], f"--{side}evenness", 0.2, f"--{side}{other}", 0.1)
        assert done.code == 1
        error, hint = done.err.splitlines()
        assert f"--{side}evenness" in error
        assert f"--{side}{other} cannot be given as well" in error
        assert f"--{side}evenness alone" in hint


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evenness", 1.01),
        ("evenness", -0.1),
        ("evenness", "nan"),
        ("flatten", -1),
        ("discount", "inf"),
        ("fairness", -2),
    ],
)
def test_a_value_out_of_range_names_the_flag(fairmf, verb, name, value):
    for side in sides(verb):
        done = fairmf(*VERBS[verb], f"--{side}{name}", value)
        assert done.code == 1
        assert done.err.startswith(f"Error: --{side}{name} takes a ")
        assert f"Got {value} instead" in done.err
    assert fairmf(*VERBS[verb], f"--{side}{name}", "much").code == 2


def test_evenness_and_fairness_of_two_sides_do_not_meet(fairmf, made):
    flags = ("--before-fairness", 0, "--after-evenness", 0.4, "--bootstrap", 0, "--json", "--no-record")
    assert fairmf("audit", made / "model.fairmf", made / "split", *flags).code == 0


def test_a_config_file_may_set_it(fairmf, made, calibrated, tmp_path):
    (tmp_path / "c.toml").write_text("[evaluate]\nevenness = 0.5\nmetrics = 'gini@10'\nbootstrap = 0\n")
    found = fairmf("evaluate", calibrated, made / "split", "--config", "c.toml", "--json", "--no-record").json
    assert found["evenness"] == 0.5
    done = fairmf("evaluate", calibrated, made / "split", "--config", "c.toml", "--flatten", 1)
    assert "--flatten cannot be given as well" in done.err


# -- what they do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (("--evenness", 0.4), (None, 0.4, 0.4)),  # not calibrated: the rule of thumb
        (("--flatten", 0.7), (None, 0.7, 0.0)),
        (("--discount", 0.3), (None, 0.0, 0.3)),
        (("--fairness", 3, "--flatten", 0.5, "--discount", 0.2), (3.0, 0.5, 0.2)),
    ],
)
def test_recommend_follows_the_formula(fairmf, made, tmp_path, flags, level):
    model = load_model(made / "model.fairmf")
    done = fairmf("recommend", made / "model.fairmf", "-n", 5, "-o", "l.parquet", *flags, "--json")
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "l.parquet")
    lists, scores = np.array(table.column("item")).reshape(-1, 5), unseen(model, scores_by_hand(model, *level))
    assert_best(model, lists, scores)
    np.testing.assert_allclose(np.array(table.column("score")).reshape(-1, 5)[:, 0], scores.max(axis=1), rtol=1e-4)
    with pytest.raises(AssertionError):  # the level matters
        assert_best(model, lists, unseen(model, scores_by_hand(model, None, 0, 0)))
    assert (done.json["flatten"], done.json["discount"]) == level[1:]


def test_new_users_and_printed_lists_have_the_level_too(fairmf, made, calibrated):
    model = load_model(calibrated)
    users = model.fitted.user_ids.values[:3].tolist()
    found = fairmf("recommend", calibrated, *users, "-n", 4, "--evenness", 0.6, "--json").json
    ids, _ = model.recommend(users, N=4, evenness=0.6)
    assert [entry["items"] for entry in found["lists"]] == ids.tolist()
    assert found["evenness"] == 0.6
    assert found["flatten"] == model.fitted.path.level(0.6).flatten
    new = fairmf("recommend", calibrated, "--new-users", made / "events.csv", "-n", 4, "-o", "n.csv", "--evenness", 0.6)
    plain = fairmf("recommend", calibrated, "--new-users", made / "events.csv", "-n", 4, "-o", "p.csv")
    assert (new.code, plain.code) == (0, 0)
    assert Path("n.csv").read_text() != Path("p.csv").read_text()


def test_a_model_that_is_not_calibrated_says_so(fairmf, made, calibrated):
    assert "not calibrated" in fairmf("recommend", made / "model.fairmf", 1, "--evenness", 0.3).err
    assert "not calibrated" not in fairmf("recommend", calibrated, 1, "--evenness", 0.3).err
    assert "not calibrated" not in fairmf("recommend", made / "model.fairmf", 1, "--flatten", 0.3).err


def test_strengths_that_are_not_given_stay_the_models_own(fairmf, made, tmp_path):
    load_model(made / "model.fairmf").with_evenness(Level(2.0, 0.6, 0.2)).save(tmp_path / "even.fairmf")
    users = load_model(made / "model.fairmf").fitted.user_ids.values[:5].tolist()
    for flags, level in (
        ((), (2.0, 0.6, 0.2)),
        (("--flatten", 0.1), (2.0, 0.1, 0.2)),
        (("--discount", 0), (2.0, 0.6, 0.0)),
        (("--fairness", 0), (0.0, 0.6, 0.2)),
    ):
        found = fairmf("recommend", "even.fairmf", *users, "--json", *flags).json
        assert (found["fairness"], found["flatten"], found["discount"]) == level
        ids, scores = load_model(made / "model.fairmf").recommend(users, evenness=Level(*level))
        # Items with the same users have nearly equal vectors, so rounding may decide which of two comes first.
        assert [sorted(entry["items"]) for entry in found["lists"]] == np.sort(ids, axis=1).tolist()
        np.testing.assert_allclose([entry["scores"] for entry in found["lists"]], scores, atol=1e-4)


def test_evaluate_measures_at_the_level_and_says_for_how_many_users(fairmf, made, calibrated):
    model, split = load_model(calibrated), Split.load(made / "split")
    flags = ("--metrics", "ndcg@10,gini@10", "--bootstrap", 0, "--no-record")
    found = fairmf("evaluate", calibrated, made / "split", *flags, "--evenness", 0.7, "--json").json
    expected = evaluate(model, split.test, metrics=["ndcg@10", "gini@10"], bootstrap=0, evenness=0.7)
    assert found["values"] == expected.values
    assert found["values"]["gini@10"] < evaluate(model, split.test, metrics=["gini@10"], bootstrap=0)["gini@10"]
    shown = " ".join(fairmf("evaluate", calibrated, made / "split", *flags, "--evenness", 0.7).out.split())
    assert f"At evenness 0.7, for {split.test.n_users} test users" in shown
    shown = " ".join(fairmf("evaluate", calibrated, made / "split", *flags, "--flatten", 0.25).out.split())
    assert f"At fairness {model.fitted.fairness:g}, flatten 0.25, for" in shown


def test_a_curve_and_a_goal_say_for_how_many_users(fairmf, made, calibrated):
    users = Split.load(made / "split").validation.n_users
    shown = fairmf("tradeoff", calibrated, made / "split", "--evenness", "0,0.5", "--no-record").out
    assert f"Measured on {users} validation users" in " ".join(shown.split())
    shown = fairmf("target", calibrated, made / "split", "--max-ndcg-loss", 0.1, "--no-record").out
    assert f"{users} users" in " ".join(shown.split())


def test_audit_compares_no_evenness_with_the_level(fairmf, made, calibrated):
    model, split = load_model(calibrated), Split.load(made / "split").test
    flags = ("--bootstrap", 0, "--no-record", "--json")
    found = fairmf("audit", calibrated, made / "split", "--after-evenness", 0.5, *flags).json
    options = {"before_options": {"evenness": Level(0.0)}, "after_options": {"evenness": 0.5}, "bootstrap": 0}
    expected = audit(model, model, split, **options)
    for name in ("gini@20", "ndcg@20"):
        assert found["metrics"][name]["before"] == expected.metrics[name].before
        assert found["metrics"][name]["after"] == expected.metrics[name].after
    assert (found["before_name"], found["after_name"]) == ("c.fairmf without evenness", "c.fairmf at evenness 0.5")
    assert found["after_level"]["flatten"] == model.fitted.path.level(0.5).flatten
    assert f"lists of {split.n_users} users" in " ".join(found["statements"])


def test_audit_of_a_model_without_evenness_shows_what_evenness_does(fairmf, made, calibrated):
    flags = ("--bootstrap", 0, "--no-record", "--json")
    done = fairmf("audit", calibrated, made / "split", *flags)
    assert (done.json["before_level"]["flatten"], done.json["after_level"]["evenness"]) == (0, 0.3)
    assert "c.fairmf without evenness is compared with evenness 0.3" in done.err
    even = load_model(calibrated).with_evenness(Level(2.0, 0.5, 0.0))
    even.save("even.fairmf")
    served = fairmf("audit", "even.fairmf", made / "split", *flags)
    level = {"evenness": None, "fairness": 2.0, "flatten": 0.5, "discount": 0.0, "lift": 0.0}
    assert served.json["after_level"] == level


def test_audit_of_one_level_with_itself_is_refused(fairmf, made, calibrated):
    for flags in (("--after-fairness", 0), ("--before-evenness", 0.4, "--after-evenness", 0.4)):
        done = fairmf("audit", calibrated, made / "split", *flags)
        assert done.code == 1
        assert "nothing to compare" in done.err
        assert "--after-evenness" in done.err.splitlines()[1]


def test_audit_with_offsets_keeps_them_on_both_sides(fairmf, made):
    how = ("--method", "offsets", "--min-exposure", 0.3, "--iterations", 20, "--save-model", "off.fairmf")
    assert fairmf("rerank", made / "model.fairmf", *how, "--evenness", 0.2).code == 0
    assert "nothing to compare" in fairmf("audit", "off.fairmf", made / "split").err  # its fairness is 0 already
    flags = ("--after-fairness", 2, "--bootstrap", 0, "--json", "--no-record")
    done = fairmf("audit", "off.fairmf", made / "split", *flags)
    assert done.code == 0, done.err
    assert done.json["before_level"]["flatten"] == done.json["after_level"]["flatten"] == 0.2
    refused = fairmf("evaluate", "off.fairmf", made / "split", "--evenness", 0.5)
    assert refused.code == 1
    assert "offsets were learned at another evenness" in refused.err


@pytest.mark.parametrize("flags", [("--evenness", 0.5), ("--flatten", 0.3, "--discount", 0.4, "--fairness", 2)])
def test_exported_vectors_have_the_scores_of_the_level(fairmf, made, calibrated, tmp_path, flags):
    for source, level in ((calibrated, None), (made / "model.fairmf", (None, 0.5, 0.5))):
        assert fairmf("export", source, "-o", "i.parquet", *flags).code == 0
        done = fairmf("export", source, "-o", "u.parquet", "--what", "users", *flags, "--json")
        assert done.code == 0, done.err
        V, U = (
            np.array(pq.read_table(tmp_path / name).column("vector").to_pylist()) for name in ("i.parquet", "u.parquet")
        )
        model = load_model(source)
        if "--flatten" in flags:
            level = (2.0, 0.3, 0.4)
        elif level is None:
            path = model.fitted.path.level(0.5)
            level = (path.fairness, path.flatten, path.discount)
        np.testing.assert_allclose(U @ V.T, scores_by_hand(model, *level), rtol=2e-3, atol=3e-4)
        assert done.json["width"] == model.factors + (level[2] > 0)


def test_an_exported_index_finds_the_lists_of_the_level(fairmf, made, tmp_path):
    pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')
    from fairmf.ranking.ann import AnnIndex

    how = ("--groups", 4, "--probes", 4)
    for flags, level in ((("--evenness", 0.4), (None, 0.4, 0.4)), (("--flatten", 0.8), (None, 0.8, 0.0))):
        assert fairmf("export", made / "model.fairmf", "-o", "i.ann", *how, *flags).code == 0
        index, model = AnnIndex.load(tmp_path / "i.ann"), load_model(made / "model.fairmf")
        ids, _ = index.recommend(model.user_factors, N=6)
        assert_best(model, ids, scores_by_hand(model, *level))


def test_an_export_of_users_without_histories_says_what_is_missing(fairmf, calibrated, tmp_path):
    model = load_model(calibrated).with_fairness(5.0)
    model.save(tmp_path / "private.fairmf", interactions=False)
    assert fairmf("export", "private.fairmf", "-o", "i.parquet", "--evenness", 0.5).code == 0
    done = fairmf("export", "private.fairmf", "-o", "u.parquet", "--what", "users", "--evenness", 0.5)
    assert done.code == 1
    assert "without its users' histories" in done.err


@pytest.mark.parametrize("method", ["fairrec", "offsets"])
def test_rerank_starts_from_the_lists_of_the_level(fairmf, made, tmp_path, method):
    model = load_model(made / "model.fairmf")
    bounds = ("--share", 0.5) if method == "fairrec" else ("--min-exposure", 0.2, "--iterations", 20)
    flags = ("-n", 5, "-o", "l.parquet", *bounds, "--evenness", 0.4, "--json")
    found = fairmf("rerank", made / "model.fairmf", "--method", method, *flags).json
    lists = np.argsort(-unseen(model, scores_by_hand(model, None, 0.4, 0.4)), axis=1, kind="stable")[:, :5]
    shown = np.unique(lists, return_counts=True)[1]
    assert found["before"]["coverage"] == pytest.approx(len(shown) / model.n_items, abs=0.02)
    assert found["before"]["most"] == pytest.approx(shown.max(), abs=1)
    assert found["users"] == model.n_users
    text = fairmf("rerank", made / "model.fairmf", "--method", method, *flags[:-1]).out
    assert f"lists of all {model.n_users} training users" in text


def test_popularity_has_no_fairness_but_can_be_discounted(fairmf, made):
    assert fairmf("fit", made / "split", "-o", "p.fairmf", "--model", "popularity").code == 0
    flags = ("--metrics", "gini@10,popularity@10", "--bootstrap", 0, "--json", "--no-record")
    plain = fairmf("evaluate", "p.fairmf", made / "split", *flags).json["values"]
    done = fairmf("evaluate", "p.fairmf", made / "split", *flags, "--discount", 9)
    assert done.code == 0, done.err
    assert done.json["values"]["popularity@10"] < plain["popularity@10"]
    assert "has no dial" in fairmf("evaluate", "p.fairmf", made / "split", "--fairness", 1).err


# -- balances and inspect ---------------------------------------------------------------------------------------------


def test_balances_are_settings_of_fit_and_in_its_record(fairmf, made, tmp_path):
    (tmp_path / "fit.toml").write_text("item_balance = 0.25\nfactors = 4\nepochs = 2\n")
    done = fairmf("fit", made / "split", "-o", "b.fairmf", "--config", "fit.toml", "--user-balance", 0.5)
    assert done.code == 0, done.err
    settings = load_model(tmp_path / "b.fairmf").fitted.settings
    assert (settings["item_balance"], settings["user_balance"]) == (0.25, 0.5)
    record = (tmp_path / "b.fit.toml").read_text()
    assert "item_balance = 0.25" in record
    assert "user_balance = 0.5" in record
    assert fairmf("fit", "--config", "b.fit.toml", "-o", "again.fairmf").code == 0
    a, b = (load_model(tmp_path / name) for name in ("b.fairmf", "again.fairmf"))
    np.testing.assert_array_equal(a.item_factors, b.item_factors)
    assert "item_balance" in fairmf("fit", made / "split", "-o", "c.fairmf", "--item-balance", -1).err
    assert "has no --item-balance" in fairmf(
        "fit", made / "split", "-o", "c.fairmf", "--model", "popularity", "--item-balance", 1
    ).err  # fmt: skip


def test_fit_chooses_settings_from_the_data_unless_one_is_given(fairmf, made, tmp_path):
    small = ("--factors", 8, "--epochs", 8)
    done = fairmf("fit", made / "split", "-o", "auto.fairmf", *small, "--json")
    model = FairALS(factors=8, epochs=8, settings="auto").fit(Split.load(made / "split").train, progress=False)
    chosen = {name: model.fitted.settings[name] for name in CHOSEN}
    defaults = {name: getattr(FairALS(), name) for name in CHOSEN}
    assert chosen != defaults
    assert done.json["settings"] == chosen
    found = load_model(tmp_path / "auto.fairmf")
    np.testing.assert_array_equal(found.item_factors, model.item_factors)
    told = done.err[done.err.index("to use them again: ") + 19 :].splitlines()[0].split()
    for flags in (told, ("--config", "auto.fit.toml")):  # both ways lead to the same model without choosing again
        again = fairmf("fit", made / "split", "-o", "again.fairmf", *small, *flags)
        assert again.code == 0, again.err
        assert "settings:" not in again.err
        np.testing.assert_array_equal(load_model(tmp_path / "again.fairmf").item_factors, found.item_factors)
    for flags in (("--settings", "given"), ("--regularization", defaults["regularization"])):
        given = fairmf("fit", made / "split", "-o", "given.fairmf", *small, *flags, "--json")
        assert "settings" not in given.json
        assert {name: load_model(tmp_path / "given.fairmf").fitted.settings[name] for name in CHOSEN} == defaults


def test_fit_takes_the_defaults_where_data_are_too_few_to_choose_by(fairmf, tmp_path):
    write_events(tmp_path / "few.csv", users=30, items=20, interactions=200)
    done = fairmf("fit", "few.csv", "-o", "few.fairmf", "--factors", 4)
    assert done.code == 0, done.err
    assert "too few to choose by" in done.err
    assert 'settings = "given"' in (tmp_path / "few.fit.toml").read_text()
    asked = fairmf("fit", "few.csv", "-o", "few.fairmf", "--factors", 4, "--settings", "auto")
    assert asked.code == 1
    assert "needs at least" in asked.err


def test_new_users_of_a_balanced_model_are_weighted_like_its_data(fairmf, made):
    small = ("--factors", 4, "--epochs", 2, "--item-balance", 0.3, "--weight", "rating")
    new = ("--new-users", made / "events.csv", "--weight", "rating", "-n", 3)
    assert fairmf("fit", made / "events.csv", "-o", "log.fairmf", *small, "--reweight", "log").code == 0
    assert fairmf("recommend", "log.fairmf", *new, "-o", "a.csv", "--reweight", "log").code == 0
    assert fairmf("recommend", "log.fairmf", *new, "-o", "b.csv").code == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    assert "weighted by log, so" in fairmf("recommend", "log.fairmf", *new, "-o", "a.csv", "--reweight", "bm25").err
    assert fairmf("fit", made / "events.csv", "-o", "raw.fairmf", *small).code == 0
    done = fairmf("recommend", "raw.fairmf", *new, "-o", "a.csv", "--reweight", "log")
    assert done.code == 0
    assert "does not say how its data were weighted" in done.err


def test_inspect_describes_a_model(fairmf, made, calibrated, tmp_path):
    model = load_model(calibrated)
    found = fairmf("inspect", calibrated, "--json").json
    assert (found["model"], found["users"], found["items"]) == ("FairALS", model.n_users, model.n_items)
    assert found["settings"] == json.loads(json.dumps(model.fitted.settings))
    assert found["path"]["knots"] == model.fitted.path.to_dict()["knots"]
    half = next(row for row in found["path"]["levels"] if row["evenness"] == 0.5)
    ginis = [knot.gini for knot in model.fitted.path.knots]
    assert half["gini"] == pytest.approx((ginis[0] + ginis[-1]) / 2)
    text = " ".join(fairmf("inspect", calibrated).out.split())
    balances = [f"{name} {model.fitted.settings[name]}" for name in ("item_balance", "user_balance")]
    for words in (*balances, f"serves with fairness {model.fitted.fairness:g}, flatten 0, discount 0", "gini@10"):
        assert words in text
    assert f"for {model.fitted.path.n_users} users" in text
    plain = fairmf("inspect", made / "model.fairmf")
    assert "not calibrated" in plain.out
    refused = fairmf("inspect", made / "model.fairmf", "--user", "u")
    assert refused.code == 1
    assert "--user does not apply" in refused.err
    assert "Gini of the items, among 150 users" in " ".join(fairmf("inspect", made / "events.csv").out.split())

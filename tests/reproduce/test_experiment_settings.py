"""The files of settings: all are whole, hold the paper's numbers, and whatever is wrong in one is said."""

import pytest
from small_experiment import SMALL, small

from fairmf.errors import FairmfError, InvalidParameter
from fairmf.reproduce.data import SOURCES
from fairmf.reproduce.kinds import kind_of, total
from fairmf.reproduce.spec import KINDS, build, experiment, experiments, read_experiment

# As published: Recall@20, Recall@50, nDCG@100.
PUBLISHED = {
    "table1-ml20m": {
        "RecVAE": (0.414, 0.553, 0.442), "Mult-VAE": (0.395, 0.537, 0.426), "iALS": (0.395, 0.532, 0.425),
        "FiADMM": (0.377, 0.513, 0.403), "Popularity": (0.162, 0.235, 0.191),
    },
    "table1-msd": {
        "RecVAE": (0.333, 0.428, 0.389), "iALS++": (0.309, 0.415, 0.368), "Mult-VAE": (0.266, 0.364, 0.319),
        "iALS": (0.245, 0.359, 0.297), "FiADMM": (0.245, 0.349, 0.296), "Popularity": (0.043, 0.068, 0.058),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", list(experiments()))
def test_every_experiment_can_be_planned_on_its_data_and_on_every_stand_in(name):
    for data in (*SOURCES, "other"):
        whole = experiment(name).on(data)
        assert whole.name == name
        pieces = kind_of(whole).plan(whole, [])
        assert pieces
        assert total(whole) >= len(pieces)
        for piece in pieces:
            build(piece.model, piece.settings)  # raises if a setting is unknown or out of its range
            assert piece.how["measure"]


@pytest.mark.parametrize("name", list(experiments()))
def test_what_is_trained_does_not_depend_on_defaults_of_ours(name):
    """The paper has no balances, and its fairness is written down."""
    for data in (*SOURCES, "other"):
        whole = experiment(name).on(data)
        for piece in kind_of(whole).plan(whole, []):
            assert piece.model != "fair-als" or {"fairness", "item_balance", "user_balance"} <= set(piece.settings)
            model = build(piece.model, piece.settings)
            assert (getattr(model, "item_balance", 0.0), getattr(model, "user_balance", 0.0)) == (0.0, 0.0)
            assert getattr(model, "settings", "given") == "given"


def test_every_table_and_figure_of_the_paper_is_there():
    names = set(experiments())
    for figure in ("table1", "figure1", "figure2", "figure3", "figure4-learning", "figure5"):
        assert {f"{figure}-ml20m", f"{figure}-msd"} <= names
    assert "figure4-time" in names
    assert {one.kind for one in experiments().values()} == set(KINDS)
    models = {one.name for one in experiment("figure4-time").series}
    assert models == {"iALS, Cholesky", "FiADMM", "FairALS", "iALS++"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_quoted_numbers_are_the_papers(name):
    quoted = {one.name: tuple(one.paper.values()) for one in experiment(name).series if one.paper}
    assert quoted == PUBLISHED[name]
    for one in experiment(name).series:
        assert list(one.paper) in ([], ["recall@20", "recall@50", "ndcg@100"])


def test_the_text_on_other_data_does_not_describe_the_papers_run():
    for name, whole in experiments().items():
        other = whole.on("ml-1m")
        if any(one.model == "fiadmm" and one.ranking for one in whole.series):
            assert other.about != whole.about, name
            assert "not the paper's data" in " ".join(other.about.split()), name


def test_the_papers_data_are_not_changed_by_stand_ins():
    whole = experiment("figure2-ml20m")
    assert whole.on("ml-20m") is whole
    admm = next(one for one in whole.series if one.name == "FiADMM")
    assert admm.grid == {"lambda_f": [1e3, 1e4]}
    elsewhere = next(one for one in whole.on("ml-1m").series if one.name == "FiADMM")
    assert elsewhere.grid == {"fairness": [1.0, 10.0]}
    assert elsewhere.settings["lambda_f"] is None
    assert elsewhere.settings["factors"] == 64
    assert whole.series[1].settings["factors"] == 256  # the experiment itself is as it was


def test_limits():
    whole = experiment("table1-ml20m")
    less = whole.limited(seeds=2, epochs=3, without=("vae",))
    assert less.seeds == 2
    assert not any("VAE" in one.name for one in less.series)
    assert {one.settings.get("epochs") for one in less.series} == {3, None}  # Popularity has no epochs
    assert whole.limited(seeds=None, epochs=None, without=()).series == whole.series


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(InvalidParameter, match="did you mean 'table1-ml20m'"):
        experiment("table1-ml20")
    with pytest.raises(InvalidParameter, match="there are table1-ml20m"):
        experiment("zzzzzzzz")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title =", "titel =", "lack 'title'"),
        ("[options]", "extra = 1\n[options]", "unknown 'extra'"),
        ('kind = "ranking_table"', 'kind = "novel"', "must be one of ranking_table"),
        ('model = "ials"', 'model = "als"', "unknown model 'als'"),
        ('name = "iALS"', 'name = "fair"', "a name of its own"),
        ("factors = 4", "factors = 0", "'factors' parameter"),
        ("factors = 4", "taste = 4", "no setting 'taste'"),
        ("tolerance", "tolerence", "unknown 'tolerence'"),
        ("gini@5", "magic@5", "magic"),
        ("0.001, 0.1", "-1.0, 0.1", "'regularization' parameter"),
        ("recall@5\" = 0.5", "fun@5\" = 0.5", "fun"),
        ('model = "popularity"\n', 'model = "popularity"\ndials = [1.0]\n', "has dials, but popularity has none"),
        ("[options]", "[stand_ins.all.series.absent]\n[options]", "the series 'absent', which does not exist"),
        ("[options]", "[stand_ins.ml-1m.series.iALS]\nsettings = { factors = 0 }\n[options]", "'factors' parameter"),
        ("[options]", "[stand_ins.ml-1m.series.iALS]\nfactors = 3\n[options]", "unknown 'factors'"),
        ("seeds = 2", "seeds = = 2", "not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_said(old, new, words):
    text = SMALL["ranking_table"]
    assert old in text
    small("ranking_table")  # as it is, it is right
    with pytest.raises(FairmfError, match=words):
        read_experiment("broken", text.replace(old, new, 1))

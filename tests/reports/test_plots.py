"""Plots: what is drawn (the data of lines, labels, bars), in both themes. Pixels are for people to look at."""

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import slow_values
from hypothesis import given
from hypothesis import strategies as st
from small_report import lists_at, small_model, small_split, some_groups

from fairmf import Curve, FiADMM, audit, calibrate, evaluate, fit_path, trade_off
from fairmf.errors import CannotWrite, FairmfError, InvalidData, InvalidParameter
from fairmf.models.fitted import History

pytest.importorskip("matplotlib", reason='needs the report extra: pip install "fairmf[report]"')
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from fairmf.reports import plots
from fairmf.reports.plot_style import DASHES, THEMES, apart, contrast, readable

EXPOSURES = {"even": np.full(10, 3.0), "uneven": np.array([0, 0, 0, 0, 0, 1, 2, 3, 4, 20.0])}


def lines(figure):
    """Every labelled line, as {label: (x, y)}."""
    found = {line.get_label(): line.get_data() for line in figure.axes[0].get_lines()}
    return {name: (list(x), list(y)) for name, (x, y) in found.items() if not name.startswith("_")}


def words(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def legend(figure):
    """What the legend beside the plot says; [] where there is none."""
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def overlapping(figure):
    """Pairs of names, and names with the axes they should stand beside, that lie on each other once drawn."""
    FigureCanvasAgg(figure).draw()
    boxes = {t.get_text(): t.get_window_extent() for t in (*figure.axes[0].texts, *figure.legends[0].get_texts())}
    frame = figure.axes[0].get_window_extent()
    page = figure.bbox
    found = [pair for pair in itertools.combinations(boxes, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]
    found += [(name, "plot") for name, box in boxes.items() if box.overlaps(frame)]
    return found + [(name, "edge") for name, box in boxes.items() if box.x1 > page.x1 or box.y0 < page.y0]


def history_of(n=5, **parts):
    record = {"objective": {"total": 9.0, "observed": 4.0, "unobserved": 3.0, "l2": 1.5, "fairness": 0.5}, **parts}
    return History([{**record, "seconds": 1.0} for _ in range(n)])


def audited(**options):
    split = small_split()
    groups = some_groups(split.train.n_items)
    return audit(small_model(), small_model(), split, after_options={"fairness": 4}, groups=groups, **options)


@pytest.fixture(params=["light", "dark"])
def theme(request):
    return request.param


def test_a_front_of_several_curves(theme):
    split = small_split()
    dial = trade_off(small_model(), split, fairness=[0, 4, 1])
    path = fit_path(type(small_model())(factors=6, epochs=2), split, fairness=[0.5, 2])
    figure = plots.trade_off_front({"dial": dial, "again": path}, theme=theme, title="A title")
    drawn = lines(figure)
    by_fairness = sorted(dial, key=lambda row: row["fairness"])
    assert drawn["dial"] == ([r["gini@20"] for r in by_fairness], [r["ndcg@100"] for r in by_fairness])
    assert drawn["again"] == ([r["gini@20"] for r in path], [r["ndcg@100"] for r in path])
    assert words(figure) == ["dial", "again"]
    axes = figure.axes[0]
    assert axes.get_xlabel().startswith("Gini@20")
    assert axes.get_ylabel().startswith("nDCG@100")
    assert axes.get_title(loc="left") == "A title"
    assert lines(plots.trade_off_front(dial + path)).keys() == {"dial", "re-trained"}
    other = plots.trade_off_front(dial, quality="recall@20", inequality="coverage@20")
    assert lines(other)["dial"][1] == [r["recall@20"] for r in by_fairness]
    assert lines(other)["dial"][0] == [r["coverage@20"] for r in by_fairness]


def test_one_curve_tells_its_fairness(theme):
    dial = trade_off(small_model(), small_split(), fairness=[0, 2, 8])
    assert set(words(plots.trade_off_front(dial, theme=theme))) <= {"0", "2", "8"}
    assert "8" in words(plots.trade_off_front(dial, theme=theme))


def test_the_path_of_evenness_with_its_intervals(theme):
    found = calibrate(type(small_model())(factors=6, epochs=2).fit(small_split().train), small_split(), bootstrap=20)
    table = found.table().to_pydict()
    figure = plots.evenness_path(found, theme=theme, title="A title")
    assert lines(figure) == {"evenness": (table["gini@20"], table["ndcg@100"])}
    drawn = [line.get_data() for line in figure.axes[0].get_lines() if line.get_label() == "_interval"]
    for k in range(11):
        up, across = drawn[2 * k], drawn[2 * k + 1]
        assert list(up[1]) == [table["ndcg@100_low"][k], table["ndcg@100_high"][k]]
        assert list(across[0]) == [table["gini@20_low"][k], table["gini@20_high"][k]]
        assert (set(up[0]), set(across[1])) == ({table["gini@20"][k]}, {table["ndcg@100"][k]})
    assert "evenness 1" in words(figure)
    assert set(words(figure)) <= {"evenness 1", *(f"{k / 10:g}" for k in range(10))}
    axes = figure.axes[0]
    assert axes.get_xlabel() == f"Gini@20 of exposure, {small_split().test.n_users} test users (left is more even)"
    assert axes.get_title(loc="left") == "A title"
    other = plots.evenness_path(found, quality="recall@20", theme=theme)
    assert lines(other)["evenness"][1] == table["recall@20"]
    with pytest.raises(InvalidParameter, match=r"The calibration measured .* Got 'gini@20' instead"):
        plots.evenness_path(found, quality="gini@20")


def test_exposure_curves_end_where_nothing_is_shown(theme):
    figure = plots.exposure_curves(EXPOSURES, theme=theme)
    drawn = lines(figure)
    assert drawn["uneven"] == ([1, 2, 3, 4, 5], [20, 4, 3, 2, 1])
    assert drawn["even"] == (list(range(1, 11)), [3.0] * 10)
    assert sorted(words(figure)) == ["even\n100% of items shown", "uneven\n50% of items shown"]
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")


def test_long_exposure_curves_are_thinned_but_keep_their_ends():
    counts = np.arange(1, 50_001)
    x, y = lines(plots.exposure_curves({"long": counts}))["long"]
    assert len(x) <= 400
    assert (x[0], y[0], x[-1], y[-1]) == (1, 50_000, 50_000, 1)
    assert all(b == 50_001 - a for a, b in zip(x, y, strict=True))


def test_lorenz(theme):
    figure = plots.lorenz_curves(EXPOSURES, theme=theme)
    drawn = lines(figure)
    shares, curve = drawn["uneven"]
    assert shares == pytest.approx(np.linspace(0, 1, 11))
    assert curve == pytest.approx([0, 0, 0, 0, 0, 0, 1 / 30, 3 / 30, 6 / 30, 10 / 30, 1])
    assert drawn["even"][1] == pytest.approx(np.linspace(0, 1, 11))
    assert words(figure) == ["even: half the items get 50.0%", "uneven: half the items get 0.0%"]


def test_coverage_by_length(theme):
    split = small_split()
    found = evaluate(small_model(), split.test, at=(5, 20), bootstrap=0)
    lists = lists_at(small_model().fitted.fairness)
    expected = [len(set(lists[:, :K].ravel().tolist()) - {-1}) / split.train.n_items for K in (5, 20)]
    figure = plots.coverage_curves({"model": found, "given": found.exposure}, theme=theme)
    for name in ("model", "given"):
        assert lines(figure)[name][0] == [5, 20]
        assert lines(figure)[name][1] == pytest.approx(expected)


def test_convergence_of_one_and_of_several(theme):
    history = small_model().history
    drawn = lines(plots.convergence(history, theme=theme))
    assert drawn["F"] == (list(range(1, len(history) + 1)), history.column("objective.total"))
    assert drawn["L2"][1] == history.column("objective.l2")
    assert set(drawn) == {"F", "observed", "unobserved", "L2", "fairness"}
    both = lines(plots.convergence({"a": history, "b": history_of(3)}, theme=theme))
    assert both == {"a": drawn["F"], "b": ([1, 2, 3], [9.0] * 3)}


def test_epochs_without_an_objective_are_left_out():
    history = history_of(4)
    history.records[1]["objective"] = None
    assert lines(plots.convergence(history))["F"] == ([1, 3, 4], [9.0] * 3)


def test_residuals(theme):
    history = FiADMM(factors=4, epochs=3).fit(small_split().train).history
    figure = plots.residuals(history, theme=theme)
    assert lines(figure)["items"][1] == history.column("residuals.items")
    assert lines(figure)["dual (constraint)"][1] == history.column("residuals.dual")
    assert figure.axes[0].get_yscale() == "log"
    several = lines(plots.residuals({"slow": history}, which="users", theme=theme))
    assert several["slow"][1] == history.column("residuals.users")


def test_time_per_epoch(theme):
    figure = plots.time_per_epoch({"one": {256: 0.4, 64: 0.1}, "two": {64: 0.2, 128: 0.3}}, theme=theme)
    assert lines(figure) == {"one": ([64, 256], [0.1, 0.4]), "two": ([64, 128], [0.2, 0.3])}
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["64", "128", "256"]
    assert legend(figure) == ["one", "two"]
    assert words(plots.time_per_epoch({"one": {64: 0.1}, "two": {64: 0.2}}, theme=theme)) == ["one", "two"]


def test_who_gains_by_popularity(theme):
    found = audited(bootstrap=0)
    figure = plots.who_gains(found, theme=theme)
    m = len(found.items.before)
    popularity = np.diff(small_split().train.by_item.indptr)
    order = sorted(range(m), key=lambda j: (popularity[j], -j))
    tenth = [[j for place, j in enumerate(order) if place * 10 // m == k] for k in range(10)]
    shares = [[o[part].sum() / o.sum() for part in tenth] for o in (found.items.before, found.items.after)]
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx([100 * (b - a) for a, b in zip(*shares, strict=True)])
    colours = [bar.get_facecolor()[:3] for bar in figure.axes[0].patches]
    expected = [to_rgb(THEMES[theme].gain if h >= 0 else THEMES[theme].loss) for h in heights]
    assert np.allclose(colours, expected)
    assert len(words(figure)) == 10


def test_who_gains_by_group(theme):
    found = audited(bootstrap=20)
    figure = plots.who_gains(found, by="group", theme=theme)
    order = sorted(found.groups, key=lambda g: g.share.difference)
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths == pytest.approx([100 * g.share.difference for g in order])
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == [g.group for g in order]
    ends = [line.get_xdata() for line in figure.axes[0].get_lines() if line.get_label() == "interval"]
    assert np.allclose(ends, [[100 * g.share.low, 100 * g.share.high] for g in order])


def test_measured_lines_leave_out_what_cannot_be_drawn(theme):
    points = {"one": [(1, 0.5), (2, 0.0), (3, float("nan")), (4, 2.0)], "none": [(1, -1.0)]}
    figure = plots.measured_lines(points, across="epoch", up="residual", logarithmic=True, theme=theme, title="A title")
    assert lines(figure) == {"one": ([1, 4], [0.5, 2.0])}
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("epoch", "residual", "log")
    assert words(figure) == ["one"]
    seconds = plots.measured_lines({"a": [(0.0, 1.0), (0.5, 2.0), (5.0, 0.0)]}, across="s", up="y", logarithmic_x=True)
    assert lines(seconds) == {"a": ([0.5, 5.0], [2.0, 0.0])}
    assert seconds.axes[0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: plots.trade_off_front({}), InvalidData, "no points"),
        (lambda: plots.trade_off_front(Curve((), ("ndcg@100", "gini@20"))), InvalidData, "no points"),
        (lambda: plots.lorenz_curves({}), InvalidData, "nothing to draw"),
        (lambda: plots.lorenz_curves({"a": np.zeros(3)}), InvalidData, "a shows no item"),
        (lambda: plots.exposure_curves({"a": np.zeros(3)}), InvalidData, "a shows no item"),
        (lambda: plots.exposure_curves({"a": [1, -1]}), InvalidData, "finite numbers >= 0"),
        (lambda: plots.exposure_curves({"a": [[1.0]]}), InvalidData, "one per item"),
        (lambda: plots.coverage_curves({}), InvalidData, "nothing to draw"),
        (lambda: plots.coverage_curves({"a": {}}), InvalidData, "a has no exposure"),
        (lambda: plots.convergence(History()), InvalidData, "records no objective"),
        (lambda: plots.residuals(history_of()), InvalidData, "nothing to draw"),
        (lambda: plots.residuals({"a": history_of()}, which="x"), InvalidData, "'x'"),
        (lambda: plots.time_per_epoch({}), InvalidData, "nothing to draw"),
        (lambda: plots.time_per_epoch({"a": {64: 0.0}}), InvalidData, "seconds > 0"),
        (lambda: plots.measured_lines({}, across="x", up="y"), InvalidData, "nothing to draw"),
        (lambda: plots.measured_lines({"a": [(1, 0)]}, across="x", up="y", logarithmic=True), InvalidData, "nothing"),
        (lambda: plots.who_gains(audited(bootstrap=0), by="x"), InvalidParameter, "'popularity' or 'group'"),
        (lambda: plots.lorenz_curves(EXPOSURES, theme="blue"), InvalidParameter, "'light' or 'dark'"),
    ],
)
def test_what_cannot_be_drawn(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_an_audit_without_popularity_or_groups():
    split = small_split()
    bare = audit(small_model(), small_model(), split.test, bootstrap=0)
    for by in ("popularity", "group"):
        with pytest.raises(InvalidData, match=r"train=|groups="):
            plots.who_gains(bare, by=by)


@pytest.mark.parametrize("kind", ["svg", "png", *slow_values("pdf")])
def test_saving_is_whole_and_repeatable(tmp_path, kind):
    paths = [plots.save(plots.lorenz_curves(EXPOSURES), tmp_path / f"{k}.{kind}") for k in (1, 2)]
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert len(first) > 2000
    with pytest.raises(InvalidParameter, match=r"\.svg, \.png or \.pdf"):
        plots.save(plots.lorenz_curves(EXPOSURES), tmp_path / "plot.jpeg")
    with pytest.raises(CannotWrite):
        plots.save(plots.lorenz_curves(EXPOSURES), tmp_path / "missing" / f"plot.{kind}")
    assert len(list(tmp_path.iterdir())) == 2


def test_words_can_be_read_and_series_told_apart(theme):
    colours = THEMES[theme]
    ground = to_rgb(colours.page)
    for colour in (colours.ink, colours.soft):
        assert contrast(to_rgb(colour), ground) >= 4.5
    for colour in colours.series:
        assert contrast(readable(colour, colours.page), ground) >= 4.5
    assert len(set(colours.series)) == 6
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast(to_rgb("#777777"), (1, 1, 1)) == pytest.approx(4.48, abs=0.01)


def test_labels_keep_apart():
    assert apart([5.0, 50.0], 10) == [5.0, 50.0]
    moved = apart([10.0, 10.0, 11.0, 60.0], 10)
    assert all(b - a >= 10 - 1e-9 for a, b in itertools.pairwise(sorted(moved)))
    assert moved[3] == 60.0  # far from the others: it stays
    assert sum(moved[:3]) == pytest.approx(31)  # which spread about their own middle
    assert apart([], 10) == []
    assert apart([98.0, 99.0, 3.0], 10, 0, 100) == [90.0, 100.0, 3.0]
    assert apart([-4.0, 50.0], 10, 0, 100) == [0.0, 50.0]


@given(st.lists(st.floats(0, 200), max_size=12))
def test_labels_move_no_further_than_they_must(places):
    """Against every other way of keeping the order: none has a smaller sum of squares nearby."""
    moved = apart(places, 10)
    order = sorted(range(len(places)), key=lambda k: (places[k], k))
    sorted_moved = [moved[k] for k in order]
    assert all(b - a >= 10 - 1e-6 for a, b in itertools.pairwise(sorted_moved))
    # a label with room on the side it came from has come to rest: moving a whole run of touching labels gains nothing
    runs = [[order[0]]] if order else []
    for before, after in itertools.pairwise(order):
        if moved[after] - moved[before] > 10 + 1e-6:
            runs.append([])
        runs[-1].append(after)
    for run in runs:
        assert sum(moved[k] - places[k] for k in run) == pytest.approx(0, abs=1e-6)


def test_many_lines_are_named_beside_the_plot(theme):
    lines_ = {f"gamma 0.0{k}, rho {k}e5": [(1, k + 1.0), (2, (k * 5) % 7 + 1.0)] for k in range(7)}
    figure = plots.measured_lines(lines_, across="epoch", up="|t - s|", theme=theme, title="A title")
    assert words(figure) == []
    assert legend(figure) == sorted(lines_, key=lambda name: -lines_[name][-1][1])
    assert overlapping(figure) == []


def test_lines_that_end_in_the_middle_are_named_beside_the_plot():
    few = {"short": [(1, 1.0), (2, 2.0)], "long": [(1, 1.0), (3, 5.0)]}
    assert legend(plots.measured_lines(few, across="epoch", up="y")) == ["long", "short"]
    same = {"short": [(1, 1.0), (3, 2.0)], "long": [(1, 1.0), (3, 5.0)]}
    assert words(plots.measured_lines(same, across="epoch", up="y")) == ["short", "long"]


def test_many_exposure_curves_are_named_beside_the_plot(theme):
    many = {f"model {k}": np.arange(10) * (k + 1.0) for k in range(5)}
    figure = plots.exposure_curves(many, theme=theme)
    assert legend(figure) == [f"model {k}\n90% of items shown" for k in range(5)]
    assert words(figure) == []
    assert overlapping(figure) == []
    dashes = [line.get_linestyle() for line in figure.axes[0].get_lines()]
    assert dashes == [*DASHES, DASHES[0]]


def test_many_fronts_are_named_beside_the_plot(theme):
    point = {"fairness": 0.0, "ndcg@100": 0.4, "gini@20": 0.9}
    curve = Curve((point, {**point, "fairness": 1.0, "gini@20": 0.8}), ("ndcg@100", "gini@20"))
    single = Curve((point,), ("ndcg@100", "gini@20"))
    figure = plots.trade_off_front({"a": curve, "b": curve, "c": curve, "d": single}, theme=theme)
    assert legend(figure) == ["a", "b", "c", "d"]
    assert words(figure) == []
    assert overlapping(figure) == []
    assert [line.get_linestyle() for line in figure.axes[0].get_lines()] == ["-", "-", "-", "None"]


def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None\n"
        "from fairmf import report\nfrom fairmf.reports import plots\n"
        "try: plots.lorenz_curves({'a': [1.0, 2.0]})\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    wanted = r'MissingDependency Plots need matplotlib: pip install "(fairmf\[report\]|matplotlib\S*)"\.'
    assert re.fullmatch(wanted, done.stdout.strip()), done.stderr


def test_errors_are_fairmfs():
    with pytest.raises(FairmfError):
        plots.convergence(History())

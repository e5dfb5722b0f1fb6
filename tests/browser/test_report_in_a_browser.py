"""The report as a reader meets it: turned, searched, sorted, darkened, printed, on a phone, without scripts."""

import re

import pytest
from browsing import Visit, a_browser
from reports.small_report import data_of, hostile_names, small_model, small_split, some_groups

from fairmf import IALS, FiADMM, audit, evaluate, report, trade_off
from fairmf.reports.content import Contender

pytestmark = pytest.mark.slow
FOLLOWERS = ("front", "lorenz", "ranked", "bands", "groups")


@pytest.fixture(scope="module")
def browser():
    with a_browser() as running:
        yield running


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report of everything, with names that bite."""
    split, m = small_split(), small_split().train.n_items
    contenders = [Contender("iALS", evaluate(IALS(factors=6, epochs=3).fit(split.train), split.test), 1.25)]
    return report(
        small_model(), split, tmp_path_factory.mktemp("report") / "report.html", evenness=[0, 0.3, 0.6, 1],
        names=hostile_names(m), groups=some_groups(m, 15), compare=contenders, record={"seed": 7}, bootstrap=20,
        title="Fair <b>recommendations</b>",
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(path):
    return data_of(path.read_text(encoding="utf-8"))


@pytest.fixture
def visit(browser, path):
    opened = []

    def visiting(where=path, **options):
        opened.append(Visit(browser, where, **options))
        return opened[-1]

    yield visiting
    for each in opened:
        each.close()


def test_it_opens_without_errors_or_requests_and_runs_no_name(visit):
    seen = visit()
    seen.page.wait_for_timeout(300)
    assert seen.page.evaluate("window.hacked") is None
    assert seen.page.locator("img").count() == 0
    assert seen.page.locator("h1").inner_text() == "Fair <b>recommendations</b>"
    seen.to_stop(3)
    seen.page.hover("#chart-groups svg")
    told = seen.page.locator("#chart-groups .tip strong")
    told.wait_for()
    assert told.inner_text().startswith("<i>group</i>")  # a tooltip is text, not markup
    assert seen.page.locator(".tip i").count() == 0
    assert seen.page.evaluate("window.hacked") is None
    assert seen.problems == []


def shown(seen, data):
    """All that follows the dial, read off the page."""
    return {
        "stop": seen.text("#stop"),
        "cards": [seen.page.locator(".card .value").nth(k).inner_text() for k in range(len(data["metrics"]))],
        "charts": [seen.drawn(chart) for chart in FOLLOWERS],
        "list": seen.text("#list-now"),
        "items": seen.text("#item-table"),
        "groups": seen.page.locator("#group-table").text_content(),
        "gainers": seen.text("#gainers"),
        "sentence": seen.text("#sentence"),
    }


def test_the_dial_by_keyboard_moves_everything(visit, data):
    seen, before = visit(), {}
    for wanted, position in enumerate(data["positions"]):
        seen.to_stop(wanted)
        found = shown(seen, data)
        assert found["stop"] == position["name"]
        assert seen.page.get_attribute("#slider", "aria-valuetext") == position["name"]
        assert found["sentence"].startswith(position["sentence"])
        assert found["cards"] == list(position["written"].values())
        assert seen.page.locator(".card .within").all_inner_texts() == [
            f"interval {ends}" for ends in position["ends"].values()
        ]
        for table in seen.page.locator(".by-stop table").all():  # costs, all metrics, levels
            assert table.locator("tr.current th").text_content() == f"{position['evenness']:g}"
        names = [data["items"]["names"][row] for row in data["stops"][wanted]["lists"][0]]
        assert [re.sub(r"\s+", " ", t) for t in seen.page.locator("#list-now .title").all_text_contents()] == [
            re.sub(r"\s+", " ", name) for name in names
        ]
        if wanted:
            same = [key for key, value in found.items() if value == before[key] and key != "charts"]
            assert same in ([], ["list"])  # one user's list may stay
            assert all(new != old for new, old in zip(found["charts"], before["charts"], strict=True))
        before = found
    assert seen.problems == []


def test_the_dial_by_mouse(visit, data):
    seen = visit()
    seen.to_stop(0)
    seen.page.locator("#slider").scroll_into_view_if_needed()
    box = seen.page.locator("#slider").bounding_box()
    seen.page.mouse.move(box["x"] + 4, box["y"] + box["height"] / 2)
    seen.page.mouse.down()
    seen.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2, steps=8)
    seen.page.mouse.up()
    assert seen.text("#stop") == data["positions"][-1]["name"]
    assert seen.problems == []


def test_a_point_of_the_chart_can_be_chosen(visit, data):
    seen = visit()
    seen.to_stop(0)
    seen.page.wait_for_timeout(200)  # the chart follows the height of the cards beside it
    point = seen.page.evaluate(
        """([x, y]) => { const chart = echarts.getInstanceByDom(document.getElementById('chart-front'));
        return chart.convertToPixel({seriesIndex: 0}, [x, y]); }""",
        [data["positions"][2]["values"][metric] for metric in (data["inequality"], data["quality"])],
    )
    seen.page.locator("#chart-front").scroll_into_view_if_needed()
    box = seen.page.locator("#chart-front").bounding_box()
    seen.page.mouse.click(box["x"] + point[0], box["y"] + point[1])
    assert seen.text("#stop") == data["positions"][2]["name"]


def test_the_chart_names_its_other_marks_in_caption_and_legend(visit, data, tmp_path):
    others = [series["name"] for series in data["series"]]
    assert {"iALS", "the model as it serves now"} <= set(others)
    seen = visit()
    caption = seen.page.locator("figcaption", has=seen.page.locator("#front-others")).inner_text()
    assert caption.endswith(f"is a stop of the slider; the other marks: {', '.join(others)}.")
    for name in others:
        seen.page.locator("#chart-front svg text", has_text=name).first.wait_for(state="attached", timeout=5000)
    # A curve has nothing to compare with: the sentence ends at the slider.
    alone = report(trade_off(small_model(), small_split(), fairness=[0, 1]), tmp_path / "curve.html")
    caption = visit(alone).page.locator("figcaption", has_text="Quality against inequality").inner_text()
    assert caption.endswith("is a stop of the slider.")


def test_lists_mark_what_changed(visit, data):
    seen = visit()
    seen.to_stop(3)
    for k in range(len(data["examples"])):
        seen.page.select_option("#example", str(k))
        before, now = (set(data["stops"][stop]["lists"][k]) for stop in (0, 3))
        assert seen.page.locator("#list-now li.new").count() == len(now - before)
        assert seen.page.locator("#list-before li.gone").count() == len(before - now)
        hits = len(now & set(data["examples"][k]["targets"]))
        assert seen.page.locator("#list-now .hit").count() == hits
    seen.to_stop(0)
    assert seen.text("#example-change") == "nothing changes"


def test_the_item_table_searches_sorts_and_turns_pages(visit, data):
    seen = visit()
    total = len(data["items"]["names"])
    assert seen.text("#found") == f"{total} items found"
    assert seen.text("#page-told") == f"1 to 20 of {total}"
    seen.page.click("#next")
    assert seen.text("#page-told") == f"21 to 40 of {total}"
    seen.page.click("#item-table button:has-text('change')")
    column = [int(t.replace("−", "-")) for t in seen.page.locator("#item-table tbody td:last-child").all_inner_texts()]
    assert column == sorted(column, reverse=True)
    assert seen.text("#page-told").startswith("1 to 20")
    assert seen.page.locator("#item-table th[aria-sort=descending]").inner_text() == "change"
    seen.page.keyboard.press("Enter")  # the button kept the focus
    column = [int(t.replace("−", "-")) for t in seen.page.locator("#item-table tbody td:last-child").all_inner_texts()]
    change = [
        b - a for a, b in zip(data["stops"][0]["exposure"], data["stops"][data["chosen"]]["exposure"], strict=True)
    ]
    assert column == sorted(change)[:20]
    seen.page.fill("#search", "<B>")  # a search knows no capitals and no markup
    assert seen.text("#found") == f"{total} items found"
    seen.page.fill("#search", "iTeM '7'")
    assert seen.text("#found") == "1 item found"
    assert seen.page.locator("#item-table tbody tr").count() == 1
    seen.page.fill("#search", "no such item")
    assert seen.text("#page-told") == "no item"
    assert seen.problems == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_slider_and_its_labels_are_on_the_first_screen(visit, data, width, height):
    seen = visit(width=width, height=height)
    box = seen.page.locator(".ends").bounding_box()
    assert box["y"] + box["height"] <= height
    labels = seen.page.locator(".ends span").all_inner_texts()
    assert labels == [position["name"].split()[-1] for position in data["positions"]]


def test_light_dark_and_back(visit):
    seen = visit(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light, chart = seen.page.evaluate(ground), seen.drawn("front")
    seen.page.click("#theme")
    dark = seen.page.evaluate(ground)
    assert dark != light
    assert seen.drawn("front") != chart
    for name in FOLLOWERS:  # no colour of the light page is left in a chart
        assert not re.search("#1b2430|#55606e|#e3e8ee", seen.drawn(name), flags=re.IGNORECASE), name
    assert seen.page.get_attribute("#theme", "aria-pressed") == "true"
    seen.page.click("#theme")
    assert seen.page.evaluate(ground) == light
    assert visit(color_scheme="dark").page.evaluate(ground) == dark
    assert seen.problems == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_sideways_scrolling(visit, width):
    seen = visit(width=width, height=800)
    seen.page.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    seen.page.evaluate("document.getElementById('items').scrollIntoView({behavior: 'instant'})")
    assert 0 <= seen.page.locator("#slider").bounding_box()["y"] < 120  # the dial stays in sight


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 390)])
def test_accessibility(visit, scheme, width):
    seen = visit(color_scheme=scheme, width=width)
    seen.to_stop(2)
    seen.page.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert seen.violations() == []


def test_everything_can_be_reached_by_keyboard(visit):
    seen = visit()
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(120):
        seen.page.keyboard.press("Tab")
        reached.add(seen.page.evaluate("document.activeElement.id || document.activeElement.dataset.sort || ''"))
    assert {"theme", "slider", "example", "search", "next", "name", "now", "change"} <= reached


def test_print(visit):
    seen = visit(color_scheme="dark")
    pdf = seen.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    seen.page.emulate_media(media="print", color_scheme="dark")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    chosen = visit(color_scheme="light")  # dark by the button, not by the system
    chosen.page.click("#theme")
    chosen.page.emulate_media(media="print")
    assert chosen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    seen.page.set_viewport_size({"width": 690, "height": 1000})  # A4 between its margins
    seen.page.locator("details").evaluate_all("all => all.forEach(d => d.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 690
    for gone in ("#theme", "#search", "#next", ".menu"):
        assert not seen.page.locator(gone).is_visible()
    assert seen.page.locator("#summary .headline").is_visible()
    assert seen.problems == []


def test_on_a_phone_every_model_is_a_card(visit):
    seen = visit(width=360, height=740)
    region = seen.page.locator("#models .wide")
    assert region.evaluate("e => e.scrollWidth <= e.clientWidth")  # nothing to scroll sideways
    cells = seen.page.locator("#models tbody tr").first.locator("td")
    heads = seen.page.locator("#models thead th").all_text_contents()[1:]
    labels = [cells.nth(k).evaluate("e => getComputedStyle(e, '::before').content") for k in range(cells.count())]
    assert labels == [f'"{head}"' for head in heads]
    tops = [cells.nth(k).bounding_box()["y"] for k in range(cells.count())]
    assert tops == sorted(set(tops))  # a line for each figure
    assert seen.violations() == []


def test_without_scripts_summary_and_tables_are_there(visit, data):
    seen = visit(java_script_enabled=False)
    assert data["positions"][data["chosen"]]["sentence"] in seen.text("#summary")
    for table in ("#models table", "#stops table", "#costs table", "#items table", "#groups table", "#record dl"):
        assert seen.page.locator(table).first.is_visible()
    for gone in ("#slider", "#chart-front", "#theme", "#search", "#lists"):
        assert not seen.page.locator(gone).is_visible()
    assert "JavaScript is off" in seen.text("noscript")


def test_reports_of_a_curve_an_audit_and_fiadmm(visit, tmp_path):
    split = small_split()
    curve = trade_off(small_model(), split, fairness=[0, 1, 2])
    two = audit(small_model(), small_model(), split, after_options={"fairness": 3}, bootstrap=0)
    slow = FiADMM(factors=4, epochs=5).fit(split.train)
    pages = [report(curve, tmp_path / "curve.html"), report(two, tmp_path / "audit.html")]
    pages.append(report(slow, split, tmp_path / "slow.html", fairness=[0, 1], bootstrap=0, examples=2))
    for page in pages:
        seen = visit(page)
        seen.to_stop(1)
        assert seen.drawn("front")
        assert seen.violations() == []
        assert seen.problems == []
    assert seen.drawn("residuals")
    assert "dual" in seen.page.locator("#chart-residuals svg").text_content()

"""The page of `fairmf serve` in a real browser: type a history, move evenness, see the list change."""

import json

import pytest
from browsing import AXE, a_browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    pytest.importorskip("uvicorn", reason="needs the extra [serve]")
    from running_server import serving

    from fairmf import FairALS, calibrate, split_by_user, synthetic

    folder = tmp_path_factory.mktemp("served")
    data = synthetic(n_users=1500, n_items=300, n_interactions=40_000)
    split = split_by_user(data, heldout=150, protocol="seeded")
    model = FairALS(factors=16, epochs=4).fit(split.train, progress=False)
    calibrate(model, split, bootstrap=0)
    model.save(folder / "m.fairmf")
    rows = [f'"{name}","Film <b>{k}</b> & co"' for k, name in enumerate(model.fitted.item_ids.values)]
    (folder / "films.csv").write_text("item,title\n" + "\n".join(rows) + "\n")
    with serving(folder / "m.fairmf", "--catalogue", folder / "films.csv") as server, a_browser() as browser:
        window = browser.new_page(viewport={"width": 1100, "height": 900})
        problems = []
        window.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        window.on("pageerror", lambda error: problems.append(str(error)))
        own = f"http://127.0.0.1:{server.port}/"
        window.on("request", lambda r: None if r.url.startswith((own, "data:")) else problems.append(r.url))
        window.goto(own)
        window.wait_for_selector("#list tr")
        yield window, problems
        assert not problems


def titles(window):
    return [text.removesuffix(" (new at this evenness)") for text in window.locator("#list td.title").all_inner_texts()]


def accessible(window):
    window.evaluate(AXE.read_text(encoding="utf-8"))
    found = window.evaluate("async () => (await axe.run(document)).violations")
    assert not found, json.dumps([(v["id"], [n["html"] for n in v["nodes"]]) for v in found])[:2000]


def test_the_page_in_order(page):
    window, _ = page
    # Without a history: popular items, said so.
    assert "popular" in window.inner_text("#status")
    popular = titles(window)
    assert len(popular) == 10
    assert "Film <b>" in popular[0]  # titles are text, never markup
    # A history typed with the keyboard alone.
    window.fill("#search", "film <b>12")
    window.wait_for_selector("#found [role=option]")
    assert window.get_attribute("#search", "aria-expanded") == "true"
    window.press("#search", "ArrowDown")
    chosen = window.inner_text("#found [aria-selected=true]")
    window.press("#search", "Enter")
    window.wait_for_function("() => !document.getElementById('status').innerText.includes('popular')")
    assert chosen in window.inner_text("#history")
    accurate = titles(window)
    assert chosen not in accurate
    # More evenness: another list, with rarer items, and what it was worth in the calibration.
    window.focus("#evenness")
    window.press("#evenness", "End")
    window.wait_for_function("() => document.getElementById('status').innerText.includes('1.00')")
    even = titles(window)
    assert even != accurate
    assert window.locator("#list .new").count() == len(set(even) - set(accurate)) > 0
    assert "Gini index" in window.inner_text("#summary")
    # Away with the history again.
    window.click("#clear")
    window.wait_for_function("() => document.getElementById('status').innerText.includes('popular')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page, scheme):
    window, _ = page
    window.emulate_media(color_scheme=scheme)
    window.fill("#search", "film")
    window.wait_for_selector("#found [role=option]")
    accessible(window)
    window.fill("#search", "")
    window.set_viewport_size({"width": 360, "height": 700})
    accessible(window)
    assert window.evaluate("() => document.documentElement.scrollWidth") <= 360
    window.set_viewport_size({"width": 1100, "height": 900})

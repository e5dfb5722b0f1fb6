"""What /metrics counts, over one worker and several; the event log; what a new model does to both."""

import errno
import json
import re

import pytest
from asgi_client import titles_and_groups

from fairmf.serve.event_log import EventLog
from fairmf.serve.figures import BUCKETS, ExposureWindow, Figures
from fairmf.serve.served_model import Catalogue


def values(text):
    """Every sample of Prometheus' text format; a line that is none fails."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) fairmf_\w+ .*", line), line
            continue
        sample = re.fullmatch(r"(fairmf_\w+(?:\{(?:\w+=\"(?:[^\"\\]|\\.)*\",?)+\})?) (NaN|[-+0-9.e]+)", line)
        assert sample, line
        assert sample[1] not in found, line
        found[sample[1]] = float(sample[2])
    return found


def test_requests_are_counted_by_route_and_status(ask, served_model):
    client = ask(catalogue=titles_and_groups(served_model))
    known = str(served_model.fitted.item_ids.values[3])
    lists = [client.post("/v1/recommend", {"history": [known], "n": 30, "evenness": 0.5}).json["ids"] for _ in range(3)]
    client.post("/v1/recommend", {"history": ["?"], "n": 5})
    client.post("/v1/recommend", b"{")
    client.get("/nowhere")
    found = values(client.get("/metrics").body.decode())
    assert found['fairmf_requests_total{route="/v1/recommend",status="200"}'] == 4
    assert found['fairmf_requests_total{route="/v1/recommend",status="400"}'] == 1
    assert found['fairmf_requests_total{route="none",status="404"}'] == 1
    assert found['fairmf_request_seconds_count{route="/v1/recommend"}'] == 5
    assert found['fairmf_request_seconds_bucket{route="/v1/recommend",le="+Inf"}'] == 5
    assert found["fairmf_ranked_total"] == 4
    assert found["fairmf_fallbacks_total"] == found["fairmf_unknown_items_total"] == 1
    assert (found["fairmf_evenness_sum_total"], found["fairmf_evenness_count_total"]) == (1.5, 3)
    # Exposure by a loop over the lists: the first 20 places count.
    popular = client.post("/v1/recommend", {"history": ["?"], "n": 5}).json["ids"]
    counts = dict.fromkeys(map(str, served_model.fitted.item_ids.values), 0)
    for ids in [*lists, popular]:
        for item in ids[:20]:
            counts[item] += 1
    ordered, m = sorted(counts.values()), len(counts)
    gini = sum((2 * k + 1 - m) * c for k, c in enumerate(ordered)) / (m * sum(ordered))
    assert found['fairmf_served_gini{k="20"}'] == pytest.approx(gini)
    odd = sum(count for place, count in enumerate(counts.values()) if place % 2)
    assert found['fairmf_served_exposure_share{group="b"}'] == pytest.approx(odd / sum(ordered))
    item = client.post("/v1/items", {"ids": [lists[0][0]]}).json["items"][0]
    assert item["served"] == counts[lists[0][0]] + (lists[0][0] in popular)


def test_workers_counts_add_up_and_survive_a_restart(tmp_path):
    first, second = (Figures(["a", "b"], tmp_path, worker) for worker in (0, 1))
    first.answered("a", 200, 0.003)
    second.answered("a", 200, 0.3)
    second.answered("b", 503, 99.0)
    second.add("waiting", 7)
    again = Figures(["a", "b"], tmp_path, 1)  # the second worker was killed
    again.answered("b", 503, 0.0)
    for figures in (first, again):
        found = values(figures.text(iter(())))
        assert found['fairmf_requests_total{route="a",status="200"}'] == 2
        assert found['fairmf_requests_total{route="b",status="503"}'] == 2
        assert found["fairmf_waiting"] == 0
        times = [found[f'fairmf_request_seconds_bucket{{route="a",le="{bound}"}}'] for bound in BUCKETS]
        assert times == [sum(seconds <= bound for seconds in (0.003, 0.3)) for bound in BUCKETS]
        assert found['fairmf_request_seconds_sum{route="a"}'] == pytest.approx(0.303)


def test_the_window_of_exposure_moves_on(tmp_path):
    now = [1000.0]
    windows = [ExposureWindow(5, 60.0, tmp_path, worker, clock=lambda: now[0]) for worker in (0, 1)]
    windows[0].count([0, 0, 1])
    windows[1].count([1, 4])
    assert windows[0].counts().tolist() == [2, 2, 0, 0, 1]
    now[0] += 45
    windows[0].count([3])
    assert windows[1].counts().tolist() == [2, 2, 0, 1, 1]
    now[0] += 20
    assert windows[1].counts().tolist() == [0, 0, 0, 1, 0]
    now[0] += 1000
    assert windows[0].counts().sum() == 0
    assert windows[0].lines(None) == []


def test_items_of_several_groups_divide_their_exposure(ask, served_model):
    names = [str(name) for name in served_model.fitted.item_ids.values]
    client = ask(catalogue=Catalogue({}, {names[0]: ["a", "b"], names[1]: ["a"]}))
    for item, times in ((names[0], 2), (names[1], 3), (names[2], 5)):
        for _ in range(times):
            client.post("/v1/recommend", {"history": [], "items": [item], "n": 1})
    found = values(client.get("/metrics").body.decode())
    shares = {group: found[f'fairmf_served_exposure_share{{group="{group}"}}'] for group in ("a", "b", "no group")}
    assert shares == pytest.approx({"a": 0.4, "b": 0.1, "no group": 0.5})


EVENT = {"kind": "shown", "items": ["a", 7], "user": "ann", "request": "abc"}


def stored(folder):
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_events_are_stored_and_files_rotate(ask, tmp_path):
    client = ask(events=tmp_path / "log", events_bytes=150)
    for k in range(4):
        assert client.post("/v1/events", {"events": [EVENT, {"kind": "clicked", "items": [k]}]}).status == 202
    found = stored(tmp_path / "log")
    assert [event["kind"] for event in found] == ["shown", "clicked"] * 4
    assert {name: found[0][name] for name in EVENT} == EVENT
    assert len(list((tmp_path / "log").iterdir())) == 4
    assert values(client.get("/metrics").body.decode())["fairmf_events_total"] == 8


def test_a_full_disk_loses_no_line_and_stops_no_list(ask, tmp_path, monkeypatch):
    import os

    client, real, full = ask(events=tmp_path / "log"), os.write, [False]

    def write(handle, content):
        if not full[0]:
            return real(handle, content)
        if len(content) > 20:
            return real(handle, content[:20])  # some bytes still fit
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fairmf.serve.event_log.os.write", write)
    assert client.post("/v1/events", {"events": [EVENT]}).status == 202
    full[0] = True
    refused = client.post("/v1/events", {"events": [EVENT]})
    assert refused.status == 503
    assert "No space left" in refused.json["detail"]
    assert client.post("/v1/recommend", {"history": [], "n": 1}).status == 200
    full[0] = False
    assert client.post("/v1/events", {"events": [EVENT]}).status == 202
    assert len(stored(tmp_path / "log")) == 2
    assert values(client.get("/metrics").body.decode())["fairmf_event_failures_total"] == 1


def test_a_file_of_an_earlier_process_is_not_continued(tmp_path):
    for _ in range(2):
        log = EventLog(tmp_path, 1 << 20)
        log._write(b"{}\n")
        log.close()
    assert len(list(tmp_path.iterdir())) == 2

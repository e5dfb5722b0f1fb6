"""Lists through a nearest-neighbour index, and floors of exposure that hold while lists are served."""

import json

import pytest
from asgi_client import small_model
from test_counts_and_events import values

from fairmf.models.ann_requests import AnnRequests

pytest.importorskip("faiss", reason="needs the extra [ann]")


def test_lists_come_from_the_index_and_recall_is_measured(ask, tmp_path, monkeypatch):
    monkeypatch.setattr("fairmf.models.ann_requests.LEAST", 0.0)  # leave a low recall as it is
    model = small_model(n_items=400)
    index = model.to_ann(groups=40, levels=True)
    index.levels.effort[:, 3] = 0.1
    index.save(tmp_path / "items.ann")
    client, library = ask(model, index=tmp_path / "items.ann"), AnnRequests(model, index)
    assert client.get("/v1/model").json["index"] is True
    names = [str(name) for name in model.fitted.item_ids.values]
    hits = slots = 0
    for k in range(8):
        history, evenness = names[9 * k : 9 * k + 3], k / 8
        answer = client.post("/v1/recommend", {"history": history, "n": 10, "evenness": evenness}).json
        ids, scores = library.recommend_for(history, N=10, evenness=evenness)
        assert answer["ids"] == ids.tolist()
        assert answer["scores"] == scores.tolist()
        exact, _ = model.recommend_for(history, N=10, evenness=evenness)
        hits, slots = hits + len(set(exact) & set(ids)), slots + len(exact)
    found = values(client.get("/metrics").body.decode())
    assert found["fairmf_index_recall"] == pytest.approx(hits / slots)
    assert 0.2 < hits / slots < 1


def test_an_index_of_other_items_is_refused(ask, served_model, tmp_path):
    small_model(n_items=45).to_ann().save(tmp_path / "other.ann")
    with pytest.raises(ValueError, match="other items"):
        ask(served_model, index=tmp_path / "other.ann")


def test_recall_is_measured_with_the_prices_of_the_lists_and_a_low_one_is_logged(ask, tmp_path, capsys):
    model = small_model(n_items=400)
    model.to_ann(groups=40, levels=True).save(tmp_path / "items.ann")
    (tmp_path / "caps.toml").write_text("window = 100\nstep = 5.0\ncap = 2.0\n")
    client = ask(model, index=tmp_path / "items.ann", control=tmp_path / "caps.toml")
    names = [str(name) for name in model.fitted.item_ids.values]
    for k in range(40):
        client.post("/v1/recommend", {"requests": [{"history": names[k : k + 3], "n": 20}] * 20})
    assert abs(client.app.service.held()[0].control.prices).max() > 0
    for k in range(30):  # fewer samples are kept between two looks
        client.post("/v1/recommend", {"history": names[k : k + 3], "n": 20, "evenness": 0.2})
        if k % 10 == 9:
            found = values(client.get("/metrics").body.decode())["fairmf_index_recall"]
    assert found > 0.9
    assert "misses items" not in capsys.readouterr().err
    service = client.app.service
    service.held()[0].index.share = 0.1
    for k in range(60):
        client.post("/v1/recommend", {"history": names[k : k + 3], "n": 20, "evenness": 0.2})
        if k % 10 == 9:
            client.get("/metrics")
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["recall"] < 0.9 for line in told if "misses items" in line["event"]] == [True]


def test_floors_hold_and_survive_a_restart(ask, served_model, tmp_path):
    floors = tmp_path / "floors.toml"
    floors.write_text('window = 100\nstep = 3.0\nper = "item"\nfloor = 0.3\n')
    names = [str(name) for name in served_model.fitted.item_ids.values]

    def shares(client, rounds):
        counts = dict.fromkeys(names, 0)
        for k in range(rounds):
            requests = [{"history": [names[(k + j) % 60]], "n": 10} for j in range(20)]
            for answer in client.post("/v1/recommend", {"requests": requests}).json["answers"]:
                for item in answer["ids"]:
                    counts[item] += 1
        total = sum(counts.values())
        return [count / total * len(names) for count in counts.values()]

    plain = shares(ask(served_model), 15)
    client = ask(served_model, control=floors)
    shares(client, 40)
    kept = shares(client, 15)
    assert sum(share < 0.3 for share in plain) > 5
    assert sum(share < 0.2 for share in kept) < sum(share < 0.2 for share in plain) / 2
    found = values(client.get("/metrics").body.decode())
    assert found["fairmf_control_largest_price"] > 0
    prices = client.app.service.held()[0].control.prices
    client.run(client.app.service.stop())
    again = ask(served_model, control=floors)
    assert again.app.service.held()[0].control.prices == pytest.approx(prices)


def test_a_full_disk_for_the_state_stops_no_list(ask, served_model, tmp_path, monkeypatch, capsys):
    floors = tmp_path / "floors.toml"
    floors.write_text("floor = 0.1\n")
    client = ask(served_model, control=floors)
    monkeypatch.setattr("fairmf.serve.service.STORED_EVERY", -1.0)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(client.app.service.held()[0].control), "save", fail)
    assert client.post("/v1/recommend", {"history": [], "n": 3}).status == 200
    told = json.loads(capsys.readouterr().err.splitlines()[0])
    assert "not stored" in told["event"]

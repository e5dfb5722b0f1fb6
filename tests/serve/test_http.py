"""What the server refuses, and how: limits, keys, deadlines, a full queue, clients that go away, errors inside."""

import asyncio
import hashlib
import json
import threading
import time

import pytest
from asgi_client import request

GOOD = {"history": [], "n": 1}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b'{"history": [1], "history"', 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[" * 100_000, 422, "object"),
        (b"[]", 422, "object"),
        (b'{"history": "abc"}', 422, "array"),
        (b'{"history": [1.5]}', 422, "history"),
        (b'{"histories": [1]}', 422, "histories"),
        (b'{"n": 0}', 422, "n"),
        (b'{"n": 201}', 422, "at most 200"),
        (b'{"evenness": 1.01}', 422, "evenness"),
        (b'{"evenness": NaN}', 400, "JSON"),
        (b'{"evenness": 0.1, "fairness": 1}', 422, "not both"),
        (b'{"history": [1], "weights": [1, 2]}', 422, "one weight"),
        (b'{"weights": [1]}', 422, "one weight"),
        (b'{"requests": []}', 422, "requests"),
        (b'{"requests": [{}], "n": 3}', 422, "n"),
        (json.dumps({"requests": [{}] * 65}).encode(), 422, "at most 64"),
        (json.dumps({"requests": [{}, {"n": 500}]}).encode(), 422, "request 1"),
        (json.dumps({"history": [1] * 1001}).encode(), 422, "at most 1,000"),
        (json.dumps({"exclude": [1] * 10_001}).encode(), 422, "at most 10,000"),
        (json.dumps({"items": [1] * 10_001}).encode(), 422, "at most 10,000"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(ask, body, status, said):
    answer = ask().post("/v1/recommend", body)
    assert answer.status == status
    assert answer.headers[b"content-type"] == b"application/problem+json"
    assert answer.json["status"] == status
    assert said in answer.json["detail"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/similar", {"item": "?"}, 404),
        ("/v1/similar", {"item": 1, "n": 201}, 422),
        ("/v1/explain", {"item": "?", "history": []}, 404),
        ("/v1/score", {"items": ["?"], "user": "?"}, 404),
        ("/v1/score", {"items": ["?"]}, 422),
        ("/v1/score", {"items": [], "user": 1}, 422),
        ("/v1/items", {}, 422),
        ("/v1/items", {"query": "a", "ids": []}, 422),
        ("/v1/events", {"events": [{"kind": "shown", "items": [1]}]}, 404),
        ("/v1/nothing", {}, 404),
    ],
)
def test_other_routes_refuse_too(ask, path, body, status):
    assert ask().post(path, body).status == status


def test_methods_types_and_unknown_addresses(ask):
    client = ask()
    wrong = client.get("/v1/recommend")
    assert (wrong.status, wrong.headers[b"allow"]) == (405, b"POST")
    assert client.post("/v1/recommend", GOOD, headers={"content-type": "text/plain"}).status == 415
    assert client.post("/v1/recommend", GOOD, headers={"content-type": None}).status == 415
    assert client.post("/v1/recommend", GOOD, headers={"content-type": "application/json; charset=utf-8"}).status == 200
    assert client.run(request(client.app, "HEAD", "/healthz/live")).status == 200


def test_a_large_body_is_refused_before_it_is_read(ask):
    client = ask(limits={"body": 100})

    async def never():
        raise AssertionError("nothing may be read")

    answer = client.run(
        request(client.app, "POST", "/v1/recommend", headers={"content-length": str(1 << 30)}, receive=never)
    )
    assert answer.status == 413
    assert answer.headers[b"connection"] == b"close"


def test_a_large_body_without_a_length_is_refused_while_it_is_read(ask):
    client, parts = ask(limits={"body": 1000}), []

    async def endless():
        parts.append(1)
        return {"type": "http.request", "body": b" " * 100, "more_body": True}

    answer = client.run(request(client.app, "POST", "/v1/recommend", headers={"content-length": None}, receive=endless))
    assert answer.status == 413
    assert len(parts) == 11


@pytest.mark.parametrize("first", [None, b'{"n":'])
def test_a_body_that_does_not_arrive_is_given_up(ask, first):
    client, sent = ask(read_timeout=0.05), [first] if first else []

    async def hanging():
        if sent:
            return {"type": "http.request", "body": sent.pop(), "more_body": True}
        return await asyncio.sleep(30)

    answer = client.run(request(client.app, "POST", "/v1/recommend", receive=hanging))
    assert answer.status == 408


def test_a_client_that_leaves_before_its_body_is_complete_gets_nothing(ask):
    async def leaving():
        return {"type": "http.disconnect"}

    client = ask()
    assert client.run(request(client.app, "POST", "/v1/recommend", receive=leaving)) is None


def test_keys(ask):
    client = ask(keys=tuple(hashlib.sha256(key).digest() for key in (b"first key", b"second key")))
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic first key"}, 401),
        ({"authorization": "Bearer second key"}, 200),
        ({"authorization": "bearer first key"}, 200),
        ({"x-api-key": "first key"}, 200),
    ):
        assert client.post("/v1/recommend", GOOD, headers=headers).status == status
        assert client.get("/metrics", headers=headers).status == status
        assert client.get("/v1/model", headers=headers).status == status
    for path in ("/healthz/live", "/healthz/ready", "/v2/health/ready", "/", "/openapi.json"):
        assert client.get(path).status == 200


class Held:
    """The thread that ranks, held up until `release`."""

    def __init__(self, client, monkeypatch):
        service = client.app.service
        self.open, self.began, self.ranked = threading.Event(), threading.Event(), []
        real = service.rank

        def rank(works):
            self.ranked.append(works)
            self.began.set()
            self.open.wait(10)
            return real(works)

        monkeypatch.setattr(service.queue, "_rank", rank)

    async def busy(self, client):
        """A request that is being ranked."""
        task = asyncio.ensure_future(request(client.app, "POST", "/v1/recommend", GOOD))
        while not self.began.is_set():
            await asyncio.sleep(0.001)
        return task


def test_a_full_queue_says_when_to_come_back(ask, monkeypatch):
    client = ask(waiting=3)
    held = Held(client, monkeypatch)

    async def fill():
        first = await held.busy(client)
        waiting = [asyncio.ensure_future(request(client.app, "POST", "/v1/recommend", GOOD)) for _ in range(3)]
        await asyncio.sleep(0.01)
        refused = await request(client.app, "POST", "/v1/recommend", GOOD)
        held.open.set()
        return refused, await asyncio.gather(first, *waiting)

    refused, others = client.run(fill())
    assert refused.status == 429
    assert refused.headers[b"retry-after"] == b"1"
    assert [answer.status for answer in others] == [200] * 4


def test_requests_that_wait_are_ranked_together(ask, monkeypatch):
    client = ask()
    held = Held(client, monkeypatch)

    async def several():
        first = await held.busy(client)
        waiting = [asyncio.ensure_future(request(client.app, "POST", "/v1/recommend", GOOD)) for _ in range(5)]
        await asyncio.sleep(0.01)
        held.open.set()
        await asyncio.gather(first, *waiting)

    client.run(several())
    assert [len(works) for works in held.ranked] == [1, 5]


def test_a_deadline_ends_the_wait(ask, monkeypatch):
    client = ask()
    held = Held(client, monkeypatch)

    async def late():
        first = await held.busy(client)
        began = time.monotonic()
        answer = await request(client.app, "POST", "/v1/recommend", GOOD, headers={"x-timeout-ms": "30"})
        took = time.monotonic() - began
        held.open.set()
        await first
        return answer, took

    answer, took = client.run(late())
    assert answer.status == 504
    assert took < 1
    assert len(held.ranked) == 1
    assert client.post("/v1/recommend", GOOD, headers={"x-timeout-ms": "soon"}).status == 422


def test_a_request_whose_client_has_gone_is_never_ranked(ask, monkeypatch):
    client = ask()
    held = Held(client, monkeypatch)

    async def leave():
        first = await held.busy(client)
        parts = [{"type": "http.request", "body": json.dumps({"history": [], "n": 7}).encode(), "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            return {"type": "http.disconnect"}

        gone = await request(client.app, "POST", "/v1/recommend", receive=receive)
        held.open.set()
        await first
        return gone

    assert client.run(leave()) is None
    assert [work.n for works in held.ranked for (work,) in works] == [1]
    assert client.app.service.figures.total("cancelled") == 1
    assert client.app.service.figures.total("waiting") == 0


def test_errors_inside_stay_inside(ask, monkeypatch, capsys):
    client = ask()

    def fail(*_):
        raise RuntimeError("secret /path")

    monkeypatch.setattr("fairmf.serve.answers.recommend", fail)
    monkeypatch.setattr("fairmf.serve.routes.answers.similar", fail)
    for path, body in (("/v1/recommend", GOOD), ("/v1/similar", {"item": 1})):
        answer = client.post(path, body)
        assert answer.status == 500
        assert b"secret" not in answer.body
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all("secret" in line["traceback"] for line in lines)
    assert len(lines) == 2


def test_logs_have_no_histories_unless_asked_for(ask, capsys):
    for wanted in (False, True):
        ask(log_requests=True, log_histories=wanted).post("/v1/recommend", {"history": ["private"], "n": 1})
        (line,) = capsys.readouterr().err.splitlines()
        told = json.loads(line)
        assert (told["path"], told["status"]) == ("/v1/recommend", 200)
        assert ("private" in line) == wanted


def test_the_id_of_a_request_comes_back(ask):
    client = ask()
    assert client.get("/healthz/live", headers={"x-request-id": "abc"}).headers[b"x-request-id"] == b"abc"
    assert len(client.get("/healthz/live").headers[b"x-request-id"]) == 16

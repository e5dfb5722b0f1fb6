"""Bodies that are broken in every way: each gets an answer that says so, and none a server error."""

import asyncio
import json
import random

import pytest
from asgi_client import request

ROUTES = {
    "/v1/recommend": [
        {"history": ["a", 1, "The"], "n": 5, "evenness": 0.3, "exclude": ["b"], "items": None, "filter_liked": False},
        {"requests": [{"user": 3}, {"history": [], "weights": []}, {"history": [1], "weights": [1], "explain": True}]},
    ],
    "/v1/similar": [{"item": "a", "n": 3, "exclude": [1]}],
    "/v1/score": [{"history": ["a"], "items": ["b", 2], "fairness": 2}],
    "/v1/explain": [{"user": 1, "item": "b", "contributions": 2}],
    "/v1/items": [{"query": "the", "n": 4}, {"ids": ["a", 2]}],
}  # fmt: skip
PIECES = [
    b"null", b"true", b"-1", b"1e999", b"1E400", b"0.1", b"99999999999999999999999", b'"\\ud800"', b'"\\u0000"',
    b"\xff", b"\xed\xa0\x80", b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"NaN", b"-Infinity", b"{}", b"[[[[",
    b" ", b'"history"', b'"requests"', b"\x00", "\U0001f600".encode(), b'"' + b"x" * 3000 + b'"',
]  # fmt: skip


def mutated(draw, bodies):
    """A valid body after a few random changes."""
    body = bytearray(json.dumps(draw.choice(bodies)).encode())
    for _ in range(draw.randint(1, 4)):
        place, kind = draw.randrange(len(body) + 1), draw.randrange(5)
        if kind == 0:
            body[place : place + draw.randrange(6)] = draw.choice(PIECES)
        elif kind == 1:
            del body[place : place + draw.randrange(1, 9)]
        elif kind == 2 and place < len(body):
            body[place] ^= 1 << draw.randrange(8)
        elif kind == 3:
            body[place:place] = body[: draw.randrange(20)]
        else:
            body = body[:place] or bytearray(b" ")
    return bytes(body)


@pytest.mark.parametrize("number", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_malformed_bodies(ask, number):
    client, draw, seen = ask(), random.Random(number), {}

    async def fuzz():
        for k in range(number):
            path = list(ROUTES)[k % len(ROUTES)]
            body = mutated(draw, ROUTES[path])
            answer = await request(client.app, "POST", path, body)
            seen[answer.status] = seen.get(answer.status, 0) + 1
            assert answer.status in (200, 400, 404, 422), (answer.status, body)
            told = answer.json  # always valid JSON
            assert answer.status == 200 or told["detail"], body

    client.loop.run_until_complete(asyncio.wait_for(fuzz(), 120))
    assert {200, 400, 422} <= set(seen)
    assert client.post("/v1/recommend", {"history": [], "n": 1}).status == 200

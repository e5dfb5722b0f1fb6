"""Ask an ASGI application without a network: a client for tests, in this process."""

import asyncio
import json

import pytest

pytest.importorskip("msgspec", reason="needs the extra [serve]")  # skips every file of tests that imports this one


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)


async def request(app, method, path, body=b"", headers=None, receive=None):
    """One request; a body that is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"content-type": "application/json", "content-length": str(len(content))} | (headers or {})
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items() if v is not None],
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": content, "more_body": False}]
    gone = asyncio.Event()

    async def body_parts():
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    messages = []

    async def send(message):
        messages.append(message)

    await app(scope, receive or body_parts, send)
    if not messages:
        return None
    start, *rest = messages
    return Answer(start["status"], dict(start["headers"]), b"".join(part["body"] for part in rest))


class Client:
    """Ask from tests that are not asynchronous; one loop for all requests, as in a server."""

    def __init__(self, app):
        self.app, self.loop = app, asyncio.new_event_loop()

    def run(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 30))

    def post(self, path, body, **options):
        return self.run(request(self.app, "POST", path, body, **options))

    def get(self, path, **options):
        return self.run(request(self.app, "GET", path, **options))

    def close(self):
        self.run(self.app.service.stop())
        self.loop.close()


def small_model(seed=0, n_items=60, **settings):
    """A model whose item ids are texts."""
    from fairmf import FairALS, synthetic

    data = synthetic(n_users=120, n_items=n_items, n_interactions=2400, random_state=seed)
    return FairALS(**{"factors": 8, "epochs": 2, "random_state": seed} | settings).fit(data, progress=False)


def numbered_model():
    """A model without ids: users and items are named by row."""
    from fairmf import IALS, Interactions, synthetic

    data = synthetic(n_users=80, n_items=40, n_interactions=1200)
    return IALS(factors=8, epochs=2).fit(Interactions(data.by_user, 40), progress=False)


def titles_and_groups(model):
    """A catalogue with a title for all items but the first, and two groups."""
    from fairmf.serve.served_model import Catalogue

    names = [str(name) for name in model.fitted.item_ids.values]
    titles = {name: f"Title {k}" for k, name in enumerate(names) if k}
    return Catalogue(titles, {name: ["ab"[k % 2]] for k, name in enumerate(names)})

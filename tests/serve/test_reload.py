"""A new model file is checked beside the old one and replaces it; a damaged one is refused."""

import asyncio
import json
import shutil

import pytest
from asgi_client import request, small_model

from fairmf import load_model
from fairmf.errors import BrokenFile
from fairmf.serve import reload
from fairmf.serve.application import Application
from fairmf.serve.reload import Pointer, Publisher
from fairmf.serve.routes import LABELS
from fairmf.serve.served_model import Catalogue, ServedModel, content_digest, stored_checksum
from fairmf.serve.service import Service
from fairmf.serve.settings import Settings


@pytest.fixture(scope="module")
def files(tmp_path_factory, served_model):
    """Two models with other items, and a damaged copy of the second."""
    folder = tmp_path_factory.mktemp("models")
    served_model.save(folder / "a.fairmf")
    small_model(seed=1, n_items=45).save(folder / "b.fairmf")
    content = bytearray((folder / "b.fairmf").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "damaged.fairmf").write_bytes(content)
    (folder / "cut.fairmf").write_bytes(content[:5000])
    (folder / "text.fairmf").write_text("not a model")
    return folder


class Life:
    """A service that watches a file, in this process."""

    def __init__(self, source, folder, monkeypatch, catalogue=None, beside=None):
        monkeypatch.setattr(reload, "POLL", 0.01)
        folder.mkdir()
        self.refused = []
        watch = {"watched": True, "poll": 0.02, "on_failure": lambda: self.refused.append(1)}
        self.publisher = Publisher(source, folder, beside=beside, **watch)
        settings = Settings()
        service = Service(None, settings, LABELS, watch=Pointer(folder, catalogue, Settings(num_threads=1)))
        self.app = Application(service, settings)

    async def list_for(self, item):
        return (await request(self.app, "POST", "/v1/recommend", {"history": [str(item)], "n": 5})).json

    async def until(self, condition):
        for _ in range(500):
            found = await self.list_for("?")
            if condition(found):
                return
            await asyncio.sleep(0.01)
        raise AssertionError("nothing changed")

    async def live(self, what):
        await self.app.service.start()
        self.publisher.start()
        try:
            return await what()
        finally:
            self.publisher.stop()
            await self.app.service.stop()


def fingerprint(path):
    return stored_checksum(path)[:16]


def test_a_new_file_is_served_and_damaged_ones_are_not(files, tmp_path, monkeypatch, capsys):
    source = tmp_path / "m.fairmf"
    shutil.copy(files / "a.fairmf", source)
    life = Life(source, tmp_path / "own", monkeypatch)

    async def story():
        first = await life.list_for("?")
        assert first["model"] == fingerprint(files / "a.fairmf")
        for bad in ("damaged", "cut", "text"):
            before = len(life.refused)
            shutil.copy(files / f"{bad}.fairmf", source)  # in place: the file that was mapped at first is overwritten
            await life.until(lambda _: len(life.refused) > before)  # noqa: B023
            assert await life.list_for("?") == first
        source.unlink()
        await asyncio.sleep(0.05)
        assert await life.list_for("?") == first
        shutil.copy(files / "b.fairmf", source)
        await life.until(lambda answer: answer["model"] == fingerprint(files / "b.fairmf"))
        second = load_model(files / "b.fairmf")
        item = second.fitted.item_ids.values[3]
        assert (await life.list_for(item))["ids"] == second.recommend_for([item], N=5)[0].tolist()
        assert life.app.service.figures.total("reloads") == 1

    asyncio.run(life.live(story))
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    # A copy that the publisher sees half-written is refused as well, and looked at again when it is whole.
    refused = ["model refused"] * max(3, len(life.refused))
    assert [line["event"] for line in told] == [*refused, "model replaced"]
    assert all(str(source) in line["reason"] for line in told[:3])


def test_a_request_being_ranked_ends_with_the_old_model(files, tmp_path, monkeypatch):
    old, new = (ServedModel.load(files / f"{name}.fairmf") for name in "ab")
    settings = Settings()
    service = Service(old, settings, LABELS)
    app, real = Application(service, settings), service.rank

    def rank(works):
        held = service.held
        monkeypatch.setattr(service, "held", lambda: (monkeypatch.undo(), held())[1])
        found = real(works)
        service.replace(new)  # in the middle of the batch, as far as the others see
        return found

    service.queue._rank = rank

    async def story():
        batch = {"requests": [{"history": [str(old.model.fitted.item_ids.values[k])], "n": 3} for k in range(4)]}
        first = (await request(app, "POST", "/v1/recommend", batch)).json
        second = (await request(app, "POST", "/v1/recommend", batch)).json
        await service.stop()
        return first, second

    first, second = asyncio.run(story())
    assert {first["model"], *(answer["model"] for answer in first["answers"])} == {old.fingerprint}
    assert {second["model"], *(answer["model"] for answer in second["answers"])} == {new.fingerprint}


def test_the_same_content_is_not_loaded_again(files, tmp_path):
    (tmp_path / "own").mkdir()
    publisher = Publisher(files / "a.fairmf", tmp_path / "own", watched=True)
    before = (tmp_path / "own" / "current.json").read_text()
    assert publisher.try_to_publish()
    assert (tmp_path / "own" / "current.json").read_text() == before


def test_the_catalogue_is_read_again(files, tmp_path, monkeypatch, capsys):
    """With a new model, and when its file changes; one that cannot be read leaves titles as they were."""
    source, table = tmp_path / "m.fairmf", tmp_path / "items.csv"
    shutil.copy(files / "a.fairmf", source)
    table.write_text("one")
    first = load_model(files / "a.fairmf").fitted.item_ids.values[0]

    def read():
        title = table.read_text()
        if title == "broken":
            raise ValueError("no such column")
        return Catalogue({str(first): title})

    life = Life(source, tmp_path / "own", monkeypatch, read, table)

    async def title():
        return (await request(life.app, "POST", "/v1/items", {"ids": [str(first)]})).json["items"][0]["title"]

    async def story():
        assert await title() == "one"
        table.write_text("another")
        for _ in range(500):
            if await title() == "another":
                break
            await asyncio.sleep(0.01)
        assert await title() == "another"
        assert life.app.service.held()[0].fingerprint == fingerprint(files / "a.fairmf")
        table.write_text("broken")
        for _ in range(500):
            if life.app.service.figures.total("reloads") == 2:
                break
            await asyncio.sleep(0.01)
        assert await title() == "another"

    asyncio.run(life.live(story))
    assert "titles and groups stay as they were" in capsys.readouterr().err


def test_without_watching_the_file_itself_is_mapped_and_only_two_copies_stay(files, tmp_path):
    (tmp_path / "own").mkdir()
    source = tmp_path / "m.fairmf"
    shutil.copy(files / "a.fairmf", source)
    publisher = Publisher(source, tmp_path / "own")
    assert json.loads((tmp_path / "own" / "current.json").read_text())["path"] == str(source.resolve())
    for name in "babab":
        shutil.copy(files / f"{name}.fairmf", source)
        assert publisher.try_to_publish()
    assert len(list((tmp_path / "own").glob("model-*.fairmf"))) == 2


def test_a_server_does_not_start_with_a_damaged_file(files, tmp_path):
    with pytest.raises(BrokenFile, match=r"damaged\.fairmf"):
        Publisher(files / "damaged.fairmf", tmp_path, watched=True)
    with pytest.raises(BrokenFile, match="checksum"):
        ServedModel.load(files / "damaged.fairmf")


def test_fingerprints_tell_models_apart(served_model):
    assert content_digest(served_model) == content_digest(served_model)
    assert content_digest(served_model) != content_digest(small_model(seed=1))
    assert content_digest(served_model) != content_digest(served_model.with_evenness(0.4))

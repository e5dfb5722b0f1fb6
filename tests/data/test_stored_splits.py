"""Splits on disk: what is loaded is what was saved; whatever is wrong with a folder is said in one sentence."""

import json
import shutil

import numpy as np
import pytest

from fairmf import Split, split_by_interaction, split_by_time, split_by_user, synthetic_events
from fairmf.data.csr import Rows
from fairmf.data.events import Events
from fairmf.data.interactions import Interactions
from fairmf.data.split import HeldOut
from fairmf.errors import BrokenFile, CannotWrite, InvalidData


def events(names=False):
    made = synthetic_events(120, 60, 1500, random_state=3)
    weights = np.random.default_rng(0).integers(1, 5, len(made)).astype(np.float32)
    users = [f"Zoë {k}" for k in made.user_ids.values] if names else made.user_ids
    return Events(made.users, made.items, users, made.item_ids, weights, made.times)


SPLITS = {
    "public": lambda: split_by_user(events(), heldout=20),
    "seeded, weighted, named": lambda: split_by_user(events(names=True), heldout=20, protocol="seeded"),
    "by interaction": lambda: split_by_interaction(events()),
    "by time": lambda: split_by_time(events()),
}


def parts(split):
    held_out = (split.validation, split.test)
    return [split.train, *(p for h in held_out for p in (h.fold_in, h.targets))]


@pytest.fixture(params=SPLITS)
def split(request):
    return SPLITS[request.param]()


def test_a_split_comes_back_as_it_was(split, tmp_path):
    split.save(tmp_path / "deep" / "split")
    found = Split.load(tmp_path / "deep" / "split")
    assert found.method == split.method
    assert found.summary() == split.summary()
    assert [h.known_users for h in (found.validation, found.test)] == [
        h.known_users for h in (split.validation, split.test)
    ]
    for before, after in zip(parts(split), parts(found), strict=True):
        assert after.fingerprint() == before.fingerprint()  # entries, weights, ids
        assert after.is_binary == before.is_binary


def test_a_split_without_ids(tmp_path):
    def one(indices):
        return Interactions(Rows(np.array([0, len(indices)]), np.array(indices, dtype=np.int32), None), 4)

    Split(one([0, 1, 2, 3]), HeldOut(one([0]), one([1])), HeldOut(one([2]), one([]))).save(tmp_path)
    found = Split.load(tmp_path)
    assert found.train.user_ids is None
    assert found.test.targets.nnz == 0
    assert found.validation.targets.by_user.indices.tolist() == [1]


def test_another_split_takes_the_place_of_the_first_and_nothing_else(tmp_path):
    first, second = SPLITS["public"](), SPLITS["by time"]()
    (tmp_path / "notes.txt").write_text("mine")
    first.save(tmp_path)
    names = {file.name for file in tmp_path.iterdir()}
    first.save(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == names
    second.save(tmp_path)
    assert Split.load(tmp_path).method == "by_time"
    assert len(list(tmp_path.iterdir())) == len(names)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_save_that_breaks_off_leaves_the_old_split(tmp_path, monkeypatch):
    first = SPLITS["public"]()
    first.save(tmp_path)
    from fairmf.io import container

    real, calls = container.write, []

    def failing(path, *rest):
        calls.append(path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(path, *rest)

    monkeypatch.setattr(container, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        SPLITS["by time"]().save(tmp_path)
    assert Split.load(tmp_path).train.fingerprint() == first.train.fingerprint()


def edit(folder, change):
    manifest = json.loads((folder / "split.json").read_text())
    change(manifest)
    (folder / "split.json").write_text(json.dumps(manifest))


def part(folder, name):
    return next(folder.glob(f"{name}-*.fairmf"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def swap_test_with_that_of_another(folder):
    other = folder.parent / "other"
    SPLITS["seeded, weighted, named"]().save(other)
    shutil.copy(part(other, "test"), part(folder, "test"))


def validation_as_test(folder):
    fingerprint = json.loads((folder / "split.json").read_text())["parts"]["validation"]["fingerprint"]
    own = {"file": f"test-{fingerprint[:12]}.fairmf", "fingerprint": fingerprint}
    shutil.copy(part(folder, "validation"), folder / own["file"])
    edit(folder, lambda manifest: manifest["parts"].update(test=own))


DAMAGE = {
    "a part is missing": (lambda f: part(f, "test").unlink(), "is missing"),
    "a part of another split": (swap_test_with_that_of_another, "another split"),
    "validation in place of test": (lambda f: shutil.copy(part(f, "validation"), part(f, "test")), "another split"),
    "a flipped bit": (lambda f: flip(part(f, "train")), "checksum"),
    "a part cut short": (lambda f: part(f, "train").write_bytes(part(f, "train").read_bytes()[:-9]), "truncated"),
    "a manifest that is no JSON": (lambda f: (f / "split.json").write_text("{"), "not valid JSON"),
    "a manifest of bytes": (lambda f: (f / "split.json").write_bytes(b"\xff\xfe\x00"), "not text"),
    "a manifest of something else": (lambda f: (f / "split.json").write_text("[1]"), "does not describe a split"),
    "a newer format": (lambda f: edit(f, lambda m: m.update(format_version=9)), "upgrade"),
    "an unknown method": (lambda f: edit(f, lambda m: m.update(method="by_luck")), "how users were divided"),
    "two parts": (lambda f: edit(f, lambda m: m["parts"].pop("test")), "train, validation and test"),
    "a file elsewhere": (lambda f: edit(f, lambda m: m["parts"]["test"].update(file="../x")), "not a file of this"),
    "a file of another name": (lambda f: edit(f, lambda m: m["parts"]["test"].update(file="x")), "not a file of this"),
    "no fingerprint": (lambda f: edit(f, lambda m: m["parts"]["test"].update(fingerprint="..")), "what its parts hold"),
    "no file": (lambda f: edit(f, lambda m: m["parts"]["test"].pop("file")), "in which files"),
    "users in two parts": (validation_as_test, "two parts"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_split_is_refused(damage, tmp_path):
    folder = tmp_path / "split"
    SPLITS["public"]().save(folder)
    harm, word = DAMAGE[damage]
    harm(folder)
    with pytest.raises(BrokenFile, match=word):
        Split.load(folder)


def test_folders_that_are_no_split(tmp_path):
    with pytest.raises(InvalidData, match=r"holds no split\.json"):
        Split.load(tmp_path)
    with pytest.raises(InvalidData, match="There is no folder"):
        Split.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CannotWrite, match="cannot be written"):
        SPLITS["public"]().save(tmp_path / "file")


FORGED = {
    "a neighbour": "precious.csv",
    "a neighbour by another way": "./precious.csv",
    "above": "../precious.csv",
    "a part's name, but no part": f"test-{'a' * 12}.fairmf",
}


@pytest.mark.parametrize("name", FORGED.values(), ids=FORGED)
def test_a_forged_manifest_deletes_nobodys_file(name, tmp_path):
    folder = tmp_path / "split"
    SPLITS["public"]().save(folder)
    precious = folder / name
    precious.write_text("user,item\n")
    edit(folder, lambda m: m["parts"].update(test={"file": name, "fingerprint": "a" * 64}))
    SPLITS["by time"]().save(folder)
    assert precious.read_text() == "user,item\n"
    Split.load(folder)


def test_only_parts_of_the_split_before_are_deleted(tmp_path):
    SPLITS["public"]().save(tmp_path)
    before = {path.name for path in tmp_path.glob("*.fairmf")}
    mine = part(tmp_path, "test")
    mine.write_bytes(b"not a part of a split any more, but somebody's file")
    SPLITS["by time"]().save(tmp_path)
    assert {path.name for path in tmp_path.glob("*.fairmf")} & before == {mine.name}


def test_nothing_is_written_through_links_that_lead_out_of_the_folder(tmp_path):
    folder, target = tmp_path / "split", tmp_path / "precious"
    target.write_text("mine")
    SPLITS["public"]().save(folder)
    names = [path.name for path in folder.iterdir()]
    shutil.rmtree(folder)
    for name in names:
        folder.mkdir()
        (folder / name).symlink_to(target)
        with pytest.raises(CannotWrite, match="a link to a file outside of the folder"):
            SPLITS["public"]().save(folder)
        assert target.read_text() == "mine"
        shutil.rmtree(folder)

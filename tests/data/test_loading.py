"""Every data set, from a server that has small files of its real format, and from copies on the disk."""

import pytest
from small_files import adjacency, expected_rows, files_of, text_of

import fairmf
from fairmf.data import read_csv
from fairmf.data.dataset_load import fetch_dataset, load_dataset
from fairmf.data.datasets import dataset, datasets
from fairmf.data.download import cache_folder, licence_accepted
from fairmf.errors import DownloadFailed, InvalidData, InvalidParameter, LicenceNotAccepted

pytestmark = pytest.mark.usefixtures("cache")
NAMES = list(datasets())


def rows_of(events):
    users, items = events.user_ids.values[events.users], events.item_ids.values[events.items]
    weights = [None] * len(events) if events.weights is None else events.weights.tolist()
    times = [None] * len(events) if events.times is None else events.times.tolist()
    return list(zip(users.tolist(), items.tolist(), weights, times, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_fetched_checked_and_read_with_the_papers_filters(name, published, server):
    entry = published(name)
    events = load_dataset(name, accept_licence=True)
    assert rows_of(events) == expected_rows(name)
    assert len(events) > 0
    assert len(set(rows_of(events))) < len(expected_rows(name, filtered=False)) or not (
        entry.rating_above or entry.min_item
    )
    assert set(events.users.tolist()) == set(range(len(events.user_ids))), "ids that no longer occur are dropped"
    fetched = len(server.requests)
    assert rows_of(load_dataset(name)) == rows_of(events)
    assert len(server.requests) == fetched, "the second time nothing is asked of the server"
    records = fetch_dataset(name)
    assert all(("as published" in r["checked_against"]) == (entry.checksum != "none published") for r in records)


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_where_filters_are_off(name, tmp_path):
    for file, content in files_of(name).items():
        (tmp_path / file).write_bytes(content)
    path = tmp_path if len(files_of(name)) > 1 else next(f for f in tmp_path.iterdir() if f.is_file())
    assert rows_of(load_dataset(name, from_path=path, filtered=False)) == expected_rows(name, filtered=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["unpacked folder", "parent folder", "file"])
def test_a_copy_one_has_needs_no_server_and_no_licence(name, how, tmp_path):
    folder = tmp_path / "copy" / "inner"
    folder.mkdir(parents=True)
    for member, content in text_of(name).items():
        (folder / member).write_bytes(content)
    if how == "file" and len(text_of(name)) > 1:
        pytest.skip("two files are no one file")
    path = {"unpacked folder": folder, "parent folder": folder.parent, "file": folder / next(iter(text_of(name)))}[how]
    assert rows_of(load_dataset(name, from_path=path)) == expected_rows(name)
    assert not cache_folder().exists()


@pytest.mark.parametrize("name", ["ml-1m", "ml-20m", "msd", "lastfm-360k", "epinions"])
def test_the_fast_reader_reads_archives_too(name, tmp_path, monkeypatch):
    monkeypatch.setattr(read_csv, "_PLAIN_FROM_BYTES", 0)
    monkeypatch.setattr(read_csv, "_PLAIN_BLOCK_BYTES", 2048)
    file, content = next(iter(files_of(name).items()))
    (tmp_path / file).write_bytes(content)
    assert rows_of(load_dataset(name, from_path=tmp_path / file)) == expected_rows(name)


def test_the_parts_of_a_published_split_share_their_codes(published):
    published("gowalla")
    whole = load_dataset("gowalla", accept_licence=True)
    train, test = (load_dataset("gowalla", part=part) for part in ("train", "test"))
    assert train.user_ids == test.user_ids == whole.user_ids
    for file, rows in (("train.txt", train), ("test.txt", test)):
        pairs = [(u, i) for u, items in adjacency()[file] for i in items]
        assert [row[:2] for row in rows_of(rows)] == pairs
    for name, part in (("ml-1m", "train"), ("gowalla", "validation")):
        with pytest.raises(InvalidParameter, match="'part' must be"):
            load_dataset(name, part=part)


@pytest.mark.parametrize("name", NAMES)
def test_what_anybody_on_the_way_could_replace_is_fetched_only_when_asked_for(name, server, monkeypatch):
    entry = datasets()[name]
    asked = []
    monkeypatch.setattr("fairmf.data.dataset_load.fetch", lambda *what, **how: asked.append(how))
    if entry.md5 is None and entry.addresses[0].startswith("http:"):
        assert name in ("msd", "epinions")
        with pytest.raises(DownloadFailed, match=r"plain http.*unprotected=True.*from_path"):
            fetch_dataset(name, accept_licence=True)
        assert asked == []
    fetch_dataset(name, accept_licence=True, unprotected=True)
    assert len(asked) == len(entry.addresses)
    assert all(how["most_bytes"] <= 2e9 for how in asked)


# -- terms --------------------------------------------------------------------------------------------------------


def test_terms_are_shown_and_accepted_once(published, server, cache):
    entry = published("ml-100k")
    with pytest.raises(LicenceNotAccepted) as caught:
        load_dataset("ml-100k")
    assert entry.licence in str(caught.value)
    assert "accept_licence=True" in str(caught.value)
    assert server.requests == []
    assert not licence_accepted(entry)
    load_dataset("ml-100k", accept_licence=True)
    assert licence_accepted(dataset("ml-100k"))
    load_dataset("ml-100k")
    published("ml-100k", licence="Other terms.")
    with pytest.raises(LicenceNotAccepted, match="Other terms"):
        load_dataset("ml-100k")
    (cache / "ml-100k" / "accepted.json").write_text("rubbish")
    with pytest.raises(LicenceNotAccepted):
        load_dataset("ml-100k")


# -- the cache ----------------------------------------------------------------------------------------------------


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("FAIRMF_DATA_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "fairmf" / "datasets"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "fairmf" / "datasets"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_folder() == tmp_path / "Library" / "Caches" / "fairmf" / "datasets"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "fairmf" / "datasets"


def test_a_cache_that_cannot_be_written(published, tmp_path, monkeypatch):
    published("ml-100k")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DownloadFailed, match=r"cannot be written.*FAIRMF_DATA_CACHE"):
        load_dataset("ml-100k", accept_licence=True)


def test_a_wrong_checksum_leaves_nothing_behind(published, server, cache):
    published("ml-1m")
    server.files["/ml-1m/ml-1m.zip"].content = files_of("ml-100k")["ml-100k.zip"]
    with pytest.raises(DownloadFailed, match="is published"):
        load_dataset("ml-1m", accept_licence=True)
    assert not (cache / "ml-1m" / "ml-1m.zip").exists()


# -- what goes wrong ----------------------------------------------------------------------------------------------


def test_unknown_names():
    with pytest.raises(InvalidParameter, match="no data set 'ml1m'; did you mean 'ml-1m'"):
        load_dataset("ml1m")
    with pytest.raises(InvalidParameter, match="there are ml-100k, ml-1m"):
        load_dataset("zzz")
    with pytest.raises(InvalidParameter):
        dataset(5)


def test_copies_that_are_not_there_or_of_another_kind(tmp_path):
    with pytest.raises(InvalidData, match="There is no file"):
        load_dataset("ml-1m", from_path=tmp_path / "nowhere")
    (tmp_path / "a.zip").write_bytes(files_of("ml-100k")["ml-100k.zip"])
    with pytest.raises(InvalidData, match=r"holds no ratings[.]dat"):
        load_dataset("ml-1m", from_path=tmp_path / "a.zip")
    (tmp_path / "ratings.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidData, match="'userId' is not in"):
        load_dataset("ml-20m", from_path=tmp_path / "ratings.csv")
    for text, line in (("0 1 2\n1 x 3\n", 2), ("0 1\n\n2 3.5\n", 3)):
        (tmp_path / "train.txt").write_text(text)
        (tmp_path / "test.txt").write_text("0 4\n")
        with pytest.raises(InvalidData, match=rf"Line {line} of .*train.txt is not a user followed by items"):
            load_dataset("gowalla", from_path=tmp_path)


# -- the registry -------------------------------------------------------------------------------------------------


def test_the_registry_holds_what_was_promised():
    wanted = (
        "ml-100k ml-1m ml-10m ml-20m ml-25m ml-32m msd lastfm-360k gowalla yelp2018 amazon-book epinions goodbooks-10k"
    )
    assert wanted.split() == NAMES
    for name, entry in datasets().items():
        assert entry.name == name
        assert len(entry.addresses) == len(entry.members) or len(entry.members) == 1
        assert all(address.startswith(("http://", "https://")) for address in entry.addresses)
        assert min(entry.users, entry.items) > 100
        assert entry.users < entry.interactions
        assert len(entry.licence) > 20
        assert (entry.rating_above == 3.5) == (name.startswith("ml-") or name in ("epinions", "goodbooks-10k"))
    assert (dataset("msd").min_item, dataset("msd").min_user) == (200, 20)


def test_the_public_names():
    assert fairmf.load_dataset is load_dataset
    assert list(fairmf.datasets()) == NAMES

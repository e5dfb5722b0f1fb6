"""`fairmf datasets`: listed, shown, fetched from a server on this machine, or read from a copy."""

import pytest
from small_files import expected_rows, files_of

from fairmf import datasets
from fairmf.cli import errors


@pytest.fixture
def ml_1m(published, fairmf, monkeypatch):
    """ml-1m in small, on a server of this machine; the cache is the test's own."""
    monkeypatch.setattr("fairmf.data.download._PAUSE_SECONDS", 0.0)
    return published("ml-1m")


def test_list_and_info(fairmf):
    listed = fairmf("datasets", "list", "--json").json["datasets"]
    assert [entry["name"] for entry in listed] == list(datasets())
    assert "ml-20m" in fairmf("datasets", "list").out
    shown = fairmf("datasets", "info", "ml-20m").out
    assert "20,000,263" in shown
    assert "GroupLens" in shown


def test_terms_are_accepted_once_and_the_name_is_a_source(fairmf, ml_1m, server):
    refused = fairmf("datasets", "fetch", "ml-1m")
    assert refused.code == errors.NOT_FETCHED
    assert "GroupLens" in refused.err
    assert "--yes" in refused.err
    assert not server.requests
    assert fairmf("inspect", "ml-1m").code == errors.NOT_FETCHED
    done = fairmf("datasets", "fetch", "ml-1m", "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["files"][0]["address"] == ml_1m.addresses[0]
    asked = len(server.requests)
    assert fairmf("datasets", "fetch", "ml-1m").code == 0
    found = fairmf("inspect", "ml-1m", "--json").json
    assert found["rows"] == len(expected_rows("ml-1m"))
    assert len(server.requests) == asked
    assert "ratings above 3.5" in fairmf("inspect", "ml-1m").err
    here = {entry["name"]: entry["here"] for entry in fairmf("datasets", "list", "--json").json["datasets"]}
    assert here["ml-1m"] is True
    assert here["ml-20m"] is False


def test_a_copy_stays_where_it_is_and_is_used_from_then_on(fairmf, ml_1m, server, tmp_path):
    ((name, content),) = files_of("ml-1m").items()
    (tmp_path / name).write_bytes(content)
    done = fairmf("datasets", "fetch", "ml-1m", "--from", name, "--json")
    assert done.code == 0, done.err
    assert done.json["rows"] == len(expected_rows("ml-1m"))
    assert fairmf("inspect", "ml-1m", "--json").json["rows"] == len(expected_rows("ml-1m"))
    assert not server.requests
    (tmp_path / name).unlink()
    assert fairmf("inspect", "ml-1m").code == errors.NOT_FETCHED  # gone: back to fetching


def test_a_copy_that_is_something_else_is_not_noted(fairmf, ml_1m, tmp_path):
    (tmp_path / "ml-1m.zip").write_bytes(b"no archive")
    assert fairmf("datasets", "fetch", "ml-1m", "--from", "ml-1m.zip").code == errors.PROBLEM
    assert fairmf("inspect", "ml-1m").code == errors.NOT_FETCHED


def test_a_server_that_fails(fairmf, ml_1m, server):
    server.files.clear()
    done = fairmf("datasets", "fetch", "ml-1m", "--yes")
    assert done.code == errors.NOT_FETCHED
    assert "404" in done.err
    assert "--from PATH" in done.err


def test_a_data_set_has_its_own_columns(fairmf):
    done = fairmf("inspect", "ml-1m", "--user", "userId")
    assert done.code == errors.PROBLEM
    assert "--user" in done.err

import pytest
from loopback import Server


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own, and no waiting between attempts."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FAIRMF_DATA_CACHE", str(folder))
    monkeypatch.setattr("fairmf.interactions.datasets.download._PAUSE_SECONDS", 0.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return folder

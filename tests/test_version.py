"""Versions of what is installed, and the command that installs an extra."""

import re
import shlex
from importlib import metadata
from pathlib import Path

import pytest

from fairmf import version

PROJECT = (Path(__file__).resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8")
_, _, DECLARED = PROJECT.partition("[project.optional-dependencies]\n")
DECLARED = dict(re.findall(r"^([\w-]+) = \[(.*)\]", DECLARED.partition("\n[")[0], flags=re.MULTILINE))


class Installed:
    """The metadata of a distribution that came from a path or a repository (direct_url.json), or from an index."""

    requires = metadata.requires("fairmf")

    def __init__(self, direct_url):
        self.direct_url = direct_url

    def read_text(self, name):
        return self.direct_url if name == "direct_url.json" else None


@pytest.fixture
def from_checkout(monkeypatch):
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed('{"url": "file:///here", "dir_info": {}}'))


def test_every_declared_extra_is_found():
    assert set(version.extras()) == set(DECLARED), "the installed metadata are old: run make install"
    assert all(version.extras().values())


@pytest.mark.usefixtures("from_checkout")
@pytest.mark.parametrize("extra", DECLARED)
def test_from_a_checkout_the_command_names_the_packages(extra):
    command = shlex.split(version.install_command(extra))
    assert command[:2] == ["pip", "install"]
    wanted = [re.sub(r"\s*;.*", "", one) for one in re.findall(r'"(.*?)"', DECLARED[extra])]
    assert {re.split("[<>=]", one)[0] for one in command[2:]} == {re.split("[<>=]", one)[0] for one in wanted}


def test_from_an_index_the_command_names_the_extra(monkeypatch):
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(None))
    assert version.install_command("ann") == 'pip install "fairmf[ann]"'


def test_without_metadata_the_command_names_the_extra(monkeypatch):
    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", missing)
    assert version.extras() == {}
    assert version.install_command("ann") == 'pip install "fairmf[ann]"'

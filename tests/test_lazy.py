"""Modules that load when they are used."""

import sys

import pytest

from fairmf.lazy import lazy_module


def test_a_module_is_imported_when_an_attribute_is_read(tmp_path, monkeypatch):
    (tmp_path / "slow_one.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = lazy_module("slow_one")
    assert "slow_one" not in sys.modules
    assert module.value == 3
    assert "slow_one" in sys.modules
    monkeypatch.delitem(sys.modules, "slow_one")


def test_a_missing_module_or_attribute_is_the_usual_error():
    with pytest.raises(ModuleNotFoundError):
        lazy_module("there_is_no_such_module").value  # noqa: B018
    with pytest.raises(AttributeError):
        lazy_module("json").there_is_no_such_name  # noqa: B018

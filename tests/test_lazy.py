"""Modules that load when they are used."""

import sys
import threading
import time

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


def test_threads_wait_for_a_module_that_another_one_is_importing(tmp_path, monkeypatch):
    (tmp_path / "slow_two.py").write_text("import time\ntime.sleep(0.2)\nvalue = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    module, found = lazy_module("slow_two"), []
    threads = [threading.Thread(target=lambda: found.append(module.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert found == [3] * 4
    monkeypatch.delitem(sys.modules, "slow_two")

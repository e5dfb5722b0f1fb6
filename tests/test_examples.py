"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import fairmf

# What needs CuPy cannot be imported without it.
NEEDS_CUPY = {
    f"fairmf.backends.cuda.{name}"
    for name in ("backend", "cholesky", "launch", "memory", "reductions", "rows", "subspace", "top_k")
}
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(fairmf.__path__, "fairmf.")
    if "__main__" not in m.name and (m.name not in NEEDS_CUPY or importlib.util.find_spec("cupy") is not None)
)


def with_examples(name):
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    for test in with_examples(name):
        assert doctest.DocTestRunner().run(test).failed == 0, test.name


def test_there_are_examples_to_run():
    assert sum(len(with_examples(name)) for name in MODULES) >= 2

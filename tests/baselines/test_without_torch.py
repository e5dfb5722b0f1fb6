"""Without PyTorch the names are there, and fitting says what to install."""

import subprocess
import sys

import pytest
from conftest import random_rows

from fairmf import MultVAE, RecVAE
from fairmf.data.interactions import Interactions
from fairmf.errors import MissingDependency


@pytest.mark.parametrize("make", [MultVAE, RecVAE])
def test_fit_says_what_to_install(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match=rf'{make.__name__} needs PyTorch: pip install "(fairmf\[vae\]|torch)'):
        make().fit(Interactions(random_rows(10, 5), 5))


def test_importing_the_baselines_does_not_import_pytorch():
    code = "import sys; from fairmf import MultVAE, RecVAE; MultVAE(factors=3); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

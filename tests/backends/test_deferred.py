"""Arrays that stay on a device until they are read: read once, whoever asks first."""

import dataclasses
import gc
import os
import pickle
import threading
import time

import numpy as np
import pytest

from fairmf import FairALS, synthetic
from fairmf.backends import contract
from fairmf.backends.contract import Deferred

VALUES = np.arange(12.0, dtype=np.float32).reshape(6, 2)


class Device:
    """Count the copies to the host."""

    def __init__(self, seconds=0.0):
        self.copies, self.seconds = 0, seconds

    def host(self, factors):
        time.sleep(self.seconds)
        self.copies += 1
        return factors.copy()

    def deferred(self):
        return Deferred(VALUES, self.host)


def test_read_once():
    device = Device()
    array = device.deferred()
    assert device.copies == 0
    assert contract.deferred_bytes() >= VALUES.nbytes
    first, second = array.host(), array.host()
    assert first is second
    np.testing.assert_array_equal(first, VALUES)
    assert (device.copies, array.nbytes) == (1, 0)


def test_threads_that_read_at_once_get_the_same_array():
    device, found = Device(seconds=0.05), []
    array = device.deferred()
    readers = [threading.Thread(target=lambda: found.append(array.host())) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert device.copies == 1
    assert all(x is found[0] for x in found)


def test_pickled_as_an_array():
    loaded = pickle.loads(pickle.dumps(Device().deferred()))
    assert type(loaded) is np.ndarray
    np.testing.assert_array_equal(loaded, VALUES)


def test_what_nobody_holds_is_not_fetched():
    device = Device()
    array = device.deferred()
    counted = contract.deferred_bytes()
    del array
    gc.collect()
    assert contract.deferred_bytes() == counted - VALUES.nbytes
    contract.fetch_deferred()
    assert device.copies == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
def test_a_fork_fetches_first_so_that_the_child_can_read():
    device = Device()
    array = device.deferred()
    child = os.fork()
    if child == 0:
        os._exit(0 if device.copies == 1 and np.array_equal(array.host(), VALUES) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert device.copies == 1


def test_a_model_reads_its_factors_when_asked():
    model = FairALS(factors=2, epochs=1).fit(synthetic(60, 40, 600), progress=False)
    device = Device()
    fitted = dataclasses.replace(model.fitted, user_factors=device.deferred())
    assert device.copies == 0
    assert fitted.user_factors is fitted.user_factors
    np.testing.assert_array_equal(fitted.user_factors, VALUES)
    other = dataclasses.replace(fitted, lift=0.5)
    assert other.user_factors is fitted.user_factors
    assert device.copies == 1

"""A disk that becomes full, or a user who gives up, while a file is written."""

import os


class FullDisk:
    """A file that takes some bytes and then no more."""

    def __init__(self, file, room, error):
        self.file, self.room, self.error = file, room, error

    def write(self, piece):
        size = memoryview(piece).nbytes
        if size > self.room:
            self.file.write(memoryview(piece)[: self.room])
            raise self.error
        self.room -= size
        return self.file.write(piece)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def fail_after(monkeypatch, room, error):
    """From now on, writing a file fails with `error` once it has taken `room` bytes."""
    real = os.fdopen
    monkeypatch.setattr(os, "fdopen", lambda *a, **k: FullDisk(real(*a, **k), room, error))

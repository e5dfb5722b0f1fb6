"""Define what the reader of plain CSV and its compiled kernels agree on: kinds of columns, and padding.

Both import this file and it imports neither, so that the kernels do not depend on the reader, and the reader knows the
kinds before Numba is loaded.
"""

from __future__ import annotations

# 0 is a column that is skipped: the kernel treats what is none of these as text that nobody stores.
INTEGER, DECIMAL, TEXT = 1, 2, 3

KINDS = {"int64": INTEGER, "double": DECIMAL, "string": TEXT}
"""The kind of each Arrow type that the kernels can read, by its name."""

# Bytes after the last line: the kernels read words of eight bytes, also past the end of a field.
PADDING = 16

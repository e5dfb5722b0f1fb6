"""Stand in for cupy.cuda.cublas."""

from cupy_backends.cuda.libs.cublas import *  # noqa: F403

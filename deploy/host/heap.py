"""Gives freed memory back to the system, so that a burst of large records leaves nothing behind.

glibc's malloc maps large blocks one by one, and unmaps them when they are freed. But with each one
that is freed the size grows from which on a block counts as large, up to 32 MiB; from then on
messages of megabytes are cut out of the heap, and leave holes there. A size that is set stays.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

LARGE_BYTES = 1 << 20
"""Blocks of this size and above are mapped one by one."""

FREE_BYTES = 1 << 22
"""As much may be free at the end of the heap before it is given back."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def give_back() -> None:
    """Set both sizes for this process; without glibc nothing is done."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, FREE_BYTES)

"""Memory that was freed is given back, also after blocks of many megabytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import ctypes, os, sys
from pathlib import Path
from driftline.deploy.host import heap

if sys.argv[1] == "given":
    heap.give_back()

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(30 << 20))  # makes glibc cut such blocks out of the heap
before, blocks, small = resident(), [], []
for _ in range(20):
    blocks.append(libc.malloc(4 << 20))
    ctypes.memset(blocks[-1], 1, 4 << 20)
    small.append(libc.malloc(300_000))  # holds the heap behind it
for block in blocks:
    libc.free(block)
print(resident() - before)
"""


def test_large_blocks_leave_no_holes_in_the_heap() -> None:
    left = {how: int(run(how)) for how in ("given", "kept")}
    assert left["given"] < 8 << 20 < 60 << 20 < left["kept"], left


def run(how: str) -> str:
    root = str(Path(__file__).resolve().parents[3])
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        env={**os.environ, "PYTHONPATH": root},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout

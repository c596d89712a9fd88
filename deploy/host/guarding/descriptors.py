"""Descriptors: how many files and connections a process may have open."""

from __future__ import annotations

import resource


def raise_limit(wanted: int) -> int | None:
    """Raise the limit of this process to what is wanted, as far as it goes.

    Returns the limit then; None: there is none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return None if soft == resource.RLIM_INFINITY else soft

"""Scrapes of metrics, as Prometheus does them."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Answer:
    """Answer of a server; status 0: no server listens, or the connection was closed."""

    status: int
    text: str


def ask(url: str) -> Answer:
    """Request a page."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode())
    except OSError as error:
        return Answer(0, str(error))


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Parse metrics with Prometheus' parser: (name, label values except `flow`) -> value."""
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "flow")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a process that serves metrics at `url`."""
    answer = ask(f"{url}/metrics")
    assert answer.status == 200, answer
    return samples(answer.text)


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports. Each process searches its own range."""
    for first in range(20_000 + os.getpid() % 500 * 20, 32_000, 20):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    trial = stack.enter_context(socket.socket())
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")

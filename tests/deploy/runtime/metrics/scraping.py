"""Scrapes, as Prometheus does them."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Answer:
    """An answer; status 0: nobody listens, or the connection was cut."""

    status: int
    text: str


def ask(url: str) -> Answer:
    """Ask for a page."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return Answer(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read().decode())
    except OSError as error:
        return Answer(0, str(error))


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, values of its labels but `flow`) -> value, by Prometheus' own parser."""
    return {
        (sample.name, *(v for k, v in sorted(sample.labels.items()) if k != "flow")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """The samples of a process that is at `url`."""
    answer = ask(f"{url}/metrics")
    assert answer.status == 200, answer
    return samples(answer.text)

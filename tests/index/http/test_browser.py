"""The search page of a real service in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from driftline.serve.http.access import new_token
from tests.index.http.browser import CHROMIUM, Chromium, chromium
from tests.index.truth.service import ServiceProcess, served

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium: `make browser`")

IDS = "[...document.querySelectorAll('#hits > li')].map(each => each.dataset.id).join()"
GOOD = "document.querySelector('#dot.good')"

WILD = '<img src=x onerror="document.title=1"> & <b>"wild"</b> \'cat\''

CATS = {
    "1": {"title": "Cats", "text": "A cat sat on the mat, and the cat slept."},
    "2": {"title": "Dogs", "text": "A dog barked at a cat."},
    "3": {"title": "Tea", "text": "Tea is made of leaves."},
    "a/b?c=<i>": {"title": WILD, "text": f"wilder {WILD}"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(ServiceProcess(tmp_path_factory.mktemp("service") / "state")) as found:
        url = found.url
        lines = "".join(json.dumps({"id": id, **document}) + "\n" for id, document in CATS.items())
        httpx.post(f"{url}/documents:bulk?wait=visible", content=lines).raise_for_status()
        yield url


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("chromium") / "profile") as found:
        yield found


@pytest.fixture
def page(browser: Chromium, service: str) -> Iterator[Chromium]:
    browser.problems.clear()
    browser.rescale(1280, 900)
    browser.show(service)
    browser.until(GOOD)
    yield browser
    assert browser.problems == []


def test_page_is_usable_by_keyboard(page: Chromium) -> None:
    page.press("/")
    page.type("te")
    page.type("a")
    page.until(f"{IDS} === '3'")
    assert page.value("location.search") == "?q=tea"
    page.press("Tab")
    page.press("Enter")
    page.until("document.querySelector('.document pre')?.textContent.includes('made of leaves')")
    assert page.value("document.activeElement.getAttribute('aria-expanded')") == "true"


def test_query_error_is_shown_with_its_position(page: Chromium) -> None:
    page.press("/")
    page.type("cat")
    page.until(f"{IDS} !== ''")
    page.type(" AND (dog")
    page.until("document.getElementById('problem').textContent")
    assert "missing" in page.text("#problem p")
    assert page.text("#problem pre").splitlines()[-1].strip() == "^"
    assert page.value("document.getElementById('q').getAttribute('aria-invalid')") == "true"
    page.type(")")
    page.until(f"{IDS} === '2' && !document.getElementById('problem').textContent")
    assert [json.loads(each)["text"] for each in page.problems] == [
        "Failed to load resource: the server responded with a status of 400 (Bad Request)"
    ]
    page.problems.clear()


def test_document_is_added_and_found(page: Chromium, service: str) -> None:
    title = f"An ocelot {WILD}"
    page.value("document.querySelector('#document-id').focus()")
    page.type("its/id")
    page.press("Tab")
    page.type(title)
    page.press("Tab")
    page.type("It is neither seen nor heard.")
    page.press("Tab")
    page.press("Enter")
    page.until("/found after [\\d.]+ .s/.test(document.getElementById('added').textContent)")
    assert "Durable after" in page.text("#added")
    page.until("document.querySelector('#hits > li.new')")
    assert page.value("document.querySelector('#hits > li.new').dataset.id") == "its/id"
    page.until("document.querySelector('#changes code')?.textContent === 'its/id'")
    assert page.text("#changes span") == title
    stored = httpx.get(f"{service}/documents/its%2Fid").json()["document"]
    assert stored == {"title": title, "text": "It is neither seen nor heard."}


def test_document_contents_are_not_rendered_as_markup(page: Chromium, service: str) -> None:
    page.show(f"{service}/?q=wilder")
    page.until(f"{IDS} === 'a/b?c=<i>'")
    assert page.text("#hits .title") == WILD
    assert page.text("#hits .snippet") == f"wilder {WILD}"
    page.value("document.querySelector('#hits .title').click()")
    page.until("document.querySelector('.document pre').textContent.includes('wilder')")
    assert page.value("document.querySelectorAll('#hits :is(img, b, i)').length") == 0
    assert page.value("document.title") == "Driftline index"


def test_page_resumes_changes_after_a_restart(browser: Chromium, tmp_path: Path) -> None:
    """The page asks for an access token once and keeps it."""
    shown = "[...document.querySelectorAll('#changes code')].map(each => each.textContent).join()"
    asked = "document.getElementById('token-dialog').open"
    token, line = new_token("write", "page")
    (tmp_path / "tokens").write_text(line + "\n")
    authorized = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30.0)
    service = ServiceProcess(tmp_path / "state", "--tokens", str(tmp_path / "tokens"))
    browser.rescale(1280, 900)
    with authorized as http:

        def put(id: str, title: str) -> None:
            url = f"{service.url}/documents/{id}?wait=visible"
            http.put(url, json={"title": title}).raise_for_status()

        with served(service):
            browser.show(service.url)
            browser.until(asked)
            browser.type(token)
            browser.press("Enter")
            browser.until(f"{GOOD} && document.getElementById('field-text')")
            put("1", "one")
            browser.until(f"{shown} === '1'")
        browser.until("document.querySelector('#dot.bad')")
        with served(service):  # restart at the same address
            put("2", "two")
            browser.until(f"{shown} === '2,1' && {GOOD}")
            browser.show(service.url)
            browser.until(f"{GOOD} && document.getElementById('field-text')")
            assert browser.value(asked) is False
            assert token not in str(browser.value("document.URL + document.cookie"))
    browser.problems.clear()

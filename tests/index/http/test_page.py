"""Files of the search page: their headers, and that they load no external resources."""

from __future__ import annotations

import asyncio
import re

import httpx
from starlette.applications import Starlette

from driftline.index.http.page import FILES, page_routes

ALL = sorted(FILES.iterdir())
SCRIPTS = [path for path in ALL if path.suffix == ".js"]


def get(path: str, **headers: str) -> httpx.Response:
    async def got() -> httpx.Response:
        transport = httpx.ASGITransport(app=Starlette(routes=page_routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(got())


def test_page_files_have_correct_types_and_no_external_sources() -> None:
    kinds = {".js": "javascript", ".svg": "svg+xml"}
    for path in ALL:
        answer = get("/" if path.name == "index.html" else f"/page/{path.name}")
        assert (answer.status_code, answer.content) == (200, path.read_bytes())
        assert kinds.get(path.suffix, path.suffix[1:]) in answer.headers["content-type"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
        assert directives["default-src"] == directives["frame-ancestors"] == "'none'"
        assert directives["require-trusted-types-for"] == "'script'"
        assert all(sources in ("'self'", "'none'", "'script'") for sources in directives.values())
        # This URL is an XML namespace, not an address.
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:https?:)?//[a-z0-9]+\.[a-z]", text)
    for other in ("/page/", "/page/routes.py", "/page/../routes.py", "/style.css"):
        assert get(other).status_code == 404


def test_scripts_do_not_turn_text_into_markup_or_code() -> None:
    ways = r"(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    for path in SCRIPTS:
        assert not re.search(ways, path.read_text())

"""Access tokens: rights, the token file, and cross-site requests."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from driftline.engine.errors import DriftlineError, NotPermitted
from driftline.serve.errors import ApiError
from driftline.serve.http.access import (
    TOKEN_FILE_POLL_S,
    Access,
    Right,
    check_exposure,
    check_host,
    new_token,
)
from driftline.serve.http.operations import HttpSettings
from tests.index.http.service import IndexBackend, client_of


async def test_each_right_includes_the_lower_rights(tmp_path: Path) -> None:
    rights: tuple[Right, ...] = ("read", "write")
    made = {right: new_token(right, f"the {right}er") for right in rights}
    path = tmp_path / "tokens"
    path.write_text("# who may what\n\n" + "\n".join(line for _, line in made.values()) + "\n")
    access = Access(path)
    assert all(token not in path.read_text() for token, _ in made.values())

    async with client_of(IndexBackend(tmp_path), HttpSettings(access)) as client:

        async def status(method: str, path: str, authorization: str | None) -> int:
            headers = {} if authorization is None else {"Authorization": authorization}
            content = b"{}" if method == "PUT" else None
            answer = await client.request(method, path, headers=headers, content=content)
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
            return answer.status_code

        for right, (token, _) in made.items():
            may_write = 403 if right == "read" else 200
            assert await status("PUT", "/documents/1", f"Bearer {token}") == may_write
            assert await status("GET", "/search?q=a", f"bearer {token}") == 200
            assert await status("GET", "/metrics", f"Bearer {token}") == 200
        token = made["read"][0]
        for wrong in (None, "", "Bearer", f"Basic {token}", f"Bearer {token}x"):
            assert await status("GET", "/search?q=a", wrong) == 401
        assert await status("GET", "/healthz", None) == 200
        assert await status("GET", "/openapi.json", None) == 200


def test_invalid_token_file_is_rejected_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for line in ("all " + "0" * 64 + " x", "read abc x", "read", "write " + "z" * 64):
        path.write_text(f"# tokens\n{line}\n")
        with pytest.raises(DriftlineError, match="tokens, line 2: this is not an access token"):
            Access(path)
    path.write_text("# none\n")
    with pytest.raises(DriftlineError, match="no access token"):
        Access(path)
    with pytest.raises(DriftlineError, match="nothing"):
        Access(tmp_path / "nothing")


def test_listening_beyond_loopback_requires_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_text(new_token("read", "x")[1])
    for host in ("127.9.9.9", "[::1]", "localhost"):
        check_exposure(host, None, False)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", ""):
        check_exposure(host, Access(path), is_encrypted=True)
        assert not caplog.records
        check_exposure(host, Access(path), is_encrypted=False)
        assert "access tokens are sent to" in caplog.text
        caplog.clear()
        with pytest.raises(NotPermitted, match="token"):
            check_exposure(host, None, is_encrypted=True)


def test_changed_token_file_is_reloaded_and_a_damaged_one_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    (old, old_line), (new, new_line) = (new_token("read", name) for name in ("old", "new"))
    path.write_text(old_line)
    times = count(0.0, TOKEN_FILE_POLL_S)
    access = Access(path, lambda: next(times))

    def known() -> set[str]:
        found = set()
        for token in (old, new):
            with suppress(ApiError):
                found.add(access.holder(f"Bearer {token}").name)
        return found

    assert known() == {"old"}
    path.write_text(f"{new_line}\n")
    assert known() == {"new"}, "the old token must be revoked"
    damages: list[Callable[[], object]] = [
        lambda: path.write_text("read 123 x"),
        path.unlink,
        lambda: os.mkfifo(path),  # a FIFO: reading must not wait for a writer
    ]
    for damage in damages:
        damage()
        assert known() == {"new"}
    warned = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert ["stay" in text for text in warned] == [True] * 2
    path.unlink()
    path.write_text(f"{new_line}\n{old_line}\n")
    assert known() == {"old", "new"}


async def test_cross_site_write_is_rejected(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str], int]] = [
        ({"Origin": "http://evil"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}, 200),
    ]

    async with client_of(IndexBackend(tmp_path)) as client:
        for headers, expected in cases:
            answer = await client.post("/documents:bulk", content=b"", headers=headers)
            assert answer.status_code == expected, headers


async def test_foreign_host_header_is_rejected_without_tokens(
    tmp_path: Path,
) -> None:
    strange = "evil.example", "evil.example:8080", "localhost.evil.example", "0.0.0.0", "10.0.0.1"
    path = tmp_path / "tokens"
    token, line = new_token("write", "x")
    path.write_text(line)

    for settings, expected in ((HttpSettings(), 403), (HttpSettings(Access(path)), 200)):
        async with client_of(IndexBackend(tmp_path / str(expected)), settings) as client:
            for host in strange:
                headers = {"Host": host, "Authorization": f"Bearer {token}"}
                for method, asked in (("PUT", "/documents/1"), ("GET", "/count?q=*")):
                    content = b"{}" if method == "PUT" else None
                    answer = await client.request(method, asked, headers=headers, content=content)
                    assert answer.status_code == expected
                    if expected == 403:
                        assert "--tokens" in answer.json()["error"]["message"]
    for host in ("localhost", "LocalHost:80", "shop.localhost:80", "127.9.9.9", "[::1]:80", ""):
        check_host(host)

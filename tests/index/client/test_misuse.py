"""Invalid uses of clients: each raises a ServiceError at once, which says what to do."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from driftline import AsyncIndexClient, IndexClient
from driftline.index.client import Invalid, ServiceError, ServiceUnavailable
from tests.index.client.serving import InProcessService

AT_ONCE_S = 5.0
"""Much less than the 30 s for which a client retries a request."""


@pytest.mark.parametrize("client", [IndexClient, AsyncIndexClient])
def test_client_rejects_invalid_arguments(client: Callable[..., object]) -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"url": "localhost:8080"}, "is not an address"),
        ({"timeout_s": 0}, "timeout_s must be a number of seconds above 0, not 0"),
        ({"retry_s": -1}, "retry_s must be a number of seconds, 0 for no retry, not -1"),
        ({"verify": "ca.pem"}, "cafile=FILE"),
        ({"token": ""}, r"strip\(\)"),
        ({"token": "secret\n"}, r"strip\(\)"),
    ]
    for arguments, said in wrong:
        with pytest.raises(ServiceError, match=said) as refused:
            client(**arguments)
        assert "secret" not in f"{refused.value!r} {refused.value}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a self-signed certificate, with its key in the same directory."""
    path = tmp_path_factory.mktemp("certificate") / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(path.with_suffix(".key")), "-out", str(path),
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return path


async def counts(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer every request with a total of 0."""
    content = b'{"at": "00000000000000", "total": 0}'
    headers = [(b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


@pytest.fixture(scope="module")
def with_tls(certificate: Path) -> Iterator[str]:
    """Run a service with the certificate and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        key = str(certificate.with_suffix(".key"))
        config = uvicorn.Config(
            counts, lifespan="off", log_config=None, ssl_certfile=str(certificate), ssl_keyfile=key
        )
        server = uvicorn.Server(config)
        running = threading.Thread(target=server.run, args=([listening],))
        running.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        running.join()


def test_tls_mismatch_is_reported_without_retries(
    with_tls: str, certificate: Path, service: InProcessService
) -> None:
    began = monotonic()
    with IndexClient(with_tls) as client, pytest.raises(ServiceUnavailable, match="verify=ssl"):
        client.count("tea")
    without = service.url.replace("http:", "https:")
    with (
        IndexClient(without) as client,
        pytest.raises(ServiceUnavailable, match="begins with http://"),
    ):
        client.count("tea")
    assert monotonic() - began < AT_ONCE_S
    known = ssl.create_default_context(cafile=certificate)
    with IndexClient(with_tls, verify=known) as client:
        assert client.count("tea").total == 0
    plain = with_tls.replace("https:", "http:")
    with (
        IndexClient(plain, retry_s=0) as client,
        pytest.raises(ServiceUnavailable, match="its address begins with https://"),
    ):
        client.count("tea")


HALF = "\ud800"


def test_invalid_text_argument_is_rejected_before_sending() -> None:
    calls: list[Callable[[IndexClient], object]] = [
        lambda index: index.put(HALF, {}),
        lambda index: index.get(None),  # type: ignore[arg-type]
        lambda index: index.delete("1", key=HALF),
        lambda index: index.search("tea", fields=[5]),  # type: ignore[list-item]
        lambda index: index.put_watch("w", HALF),
        lambda index: index.changes(HALF),
        lambda index: index.collection(5),  # type: ignore[arg-type]
    ]
    with IndexClient("http://127.0.0.1:1") as index:
        for call in calls:
            with pytest.raises(Invalid):
                call(index)


def test_closed_client_raises_an_error(service: InProcessService) -> None:
    index = IndexClient(service.url, token=service.token)
    other = index.collection("strict")
    index.close()
    for call in (
        lambda: index.count("tea"),
        lambda: other.put("1", {}),
        lambda: list(index.bulk([{"id": "1"}])),
        lambda: next(index.changes("00000000000000")),
    ):
        with pytest.raises(ServiceError, match="was closed"):
            call()


def test_single_string_is_accepted_as_one_field(service: InProcessService) -> None:
    with IndexClient(service.url, token=service.token, session=True) as index:
        index.put("misuse", {"title": "alone", "tags": ["a"]})
        found = index.search("title:alone", fields="title", facets="tags")
        assert found.hits[0].fields == {"title": "alone"}
        assert [value.value for value in found.facets["tags"]] == ["a"]
        assert next(index.search_all("title:alone", fields="title")).hits == found.hits

"""Web page at `/`: a few static files, which use the same HTTP operations as other clients.

The files are self-contained. The content security policy enforces this: the browser loads nothing
from other origins, and does not convert text to scripts or markup.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from driftline.serve.http.operations import REQUEST_LOG_KEY, RequestLog

FILES = Path(__file__).parent / "static"

INDEX = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

CONTENT_SECURITY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content security policy. `trusted-types`: scripts cannot make markup from text (`innerHTML`)."""

HEADERS = {
    "Cache-Control": "no-cache",  # cached, revalidated by ETag
    "Content-Security-Policy": CONTENT_SECURITY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes() -> list[Route]:
    """Return the route `/`, and `/page/NAME` for each other file; they require no access token."""
    files = sorted(path for path in FILES.iterdir() if path.suffix in MEDIA_TYPES)
    return [_route(path) for path in files]


def _route(path: Path) -> Route:
    data = path.read_bytes()
    tag = f'"{blake2b(data, digest_size=12).hexdigest()}"'
    headers = {**HEADERS, "ETag": tag}

    async def file(request: Request) -> Response:
        request_log = request.scope.get(REQUEST_LOG_KEY)
        if isinstance(request_log, RequestLog):
            request_log.operation = "page"
        cached_tags = request.headers.get("if-none-match", "")
        if tag in (each.strip().removeprefix("W/") for each in cached_tags.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(data, headers=headers, media_type=MEDIA_TYPES[path.suffix])

    return Route("/" if path.name == INDEX else f"/page/{path.name}", file, methods=["GET"])

"""Serves one page to this machine alone: loopback, and only under its own name.

A page of another site can make a browser ask a port of this machine, under a name that it has pointed here. Such a
request has that name in its Host header, and is refused.
"""

import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from valueshare.errors import InvalidInput
from valueshare.files import reason
from valueshare.report.page.live import View
from valueshare.report.page.results import LIVE_POLICY

HOST = "127.0.0.1"
HEADERS = {
    "Content-Security-Policy": LIVE_POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def server(view: Callable[[], View], port: int = 0) -> ThreadingHTTPServer:
    """A server of the newest view at /, its version at /state.json, and its clip; not yet running."""

    # http.server takes classes: these two are the only ones of the package with such parents.
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "valueshare", ""
        timeout = 30  # seconds of a request: none holds a thread forever

        def do_GET(self) -> None:
            self._respond(with_body=True)

        def do_HEAD(self) -> None:
            self._respond(with_body=False)

        def _respond(self, *, with_body: bool) -> None:
            port = self.connection.getsockname()[1]
            hosts = self.headers.get_all("Host", [])
            status, kind, body = response(self.path, hosts, port, view())
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """The terminal is the user's."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A browser that closed the connection early is not an error."""

    if not 0 <= port <= 65_535:
        raise InvalidInput(f"`port = {port}`: write a number from 0 to 65535; 0 is any free one")
    try:
        return Server((HOST, port), Handler)
    except OSError as error:
        raise InvalidInput(f"`port = {port}`: {reason(error)}; choose another, or 0 for any") from error


def response(path: str, hosts: list[str], port: int, view: View) -> tuple[int, str, bytes]:
    """Status, content type and body of the response to a request."""
    if len(hosts) != 1 or hosts[0].lower() not in (f"{HOST}:{port}", f"localhost:{port}"):
        return HTTPStatus.FORBIDDEN, "text/plain", b"use the printed address\n"
    where = path.partition("?")[0]
    if where == "/":
        return HTTPStatus.OK, "text/html; charset=utf-8", view.content
    if where == "/state.json":
        state: dict[str, Any] = {"version": view.version}
        if view.clip is not None:
            state["clip"] = {"number": view.clip.number, "text": view.clip.text, "note": view.clip.note}
        if view.notice:
            state["notice"] = view.notice
        return HTTPStatus.OK, "application/json", json.dumps(state).encode()
    if view.clip is not None and view.clip.number and where == f"/clip-{view.clip.number}.mp4":
        return HTTPStatus.OK, "video/mp4", view.clip.content
    if where == "/favicon.ico":
        return HTTPStatus.NO_CONTENT, "image/x-icon", b""
    return HTTPStatus.NOT_FOUND, "text/plain", b"not found: the page is at /\n"

"""A page that is served to this machine alone, and follows what it shows."""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import NamedTuple

from calibrant.errors import CalibrantError, NoDataError

HERE = "127.0.0.1"
AGAIN = "3"  # seconds until a browser asks again for a page that could not be made
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class State(NamedTuple):
    """How far things are: a word that changes when they do, and a sentence for the reader."""

    word: str
    said: str


class Server(ThreadingHTTPServer):
    """Serves the page at / and its state at /state to this machine; it writes nothing and knows no other file.

    look: the state now, which is asked for every few seconds. page: the page of a state.

    Raises: NoDataError where the port is taken.
    """

    daemon_threads = True

    def __init__(self, look: Callable[[], State], page: Callable[[State], str], port: int = 0) -> None:
        try:
            super().__init__((HERE, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NoDataError(f"port {port} of {HERE} cannot be served: {reason}") from None
        self.look, self._draw = look, page
        self._drawing = threading.Lock()
        self._drawn: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        return f"http://{HERE}:{self.server_port}/"

    @property
    def hosts(self) -> tuple[str, str]:
        """What a browser of this machine calls it: no other name that somebody has made to lead here."""
        return f"{HERE}:{self.server_port}", f"localhost:{self.server_port}"

    def page(self) -> str:
        """The page of the state now, drawn once however many ask for it.

        Where it cannot be drawn, as when a file is being written, it is the last that could: its word is old, so that
        its script asks again. Raises: CalibrantError where there has been none.
        """
        with self._drawing:
            try:
                state = self.look()
                if self._drawn is None or self._drawn[0] != state.word:
                    self._drawn = state.word, self._draw(state)
            except CalibrantError:
                if self._drawn is None:
                    raise
            return self._drawn[1]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "calibrant", ""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.headers.get("Host") not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "this page is for the machine that makes it\n")
        elif path not in ("/", "/state"):
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "there is one page here: /\n")
        else:
            try:
                self._send(HTTPStatus.OK, *self._content(path))
            except CalibrantError as error:
                self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", f"{error}\n", {"Refresh": AGAIN})

    def _content(self, path: str) -> tuple[str, str]:
        if path == "/":
            return "text/html", self.server.page()
        state = self.server.look()
        return "application/json", json.dumps({"state": state.word, "said": state.said})

    def _send(self, status: HTTPStatus, kind: str, text: str, more: Mapping[str, str] = MappingProxyType({})) -> None:
        body = text.encode()
        about = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        with suppress(ConnectionError):  # the reader has gone
            self.send_response(status)
            for name, value in (HEADERS | about | dict(more)).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a line for every look of a browser would drown the address."""

"""A server of errors on this machine: the first part of a path is the status of the answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        word = self.path[1:].partition("/")[0]
        if word == "hang-up":
            return
        body = b"no Parquet" if word == "200" else b""
        self.send_response(int(word))
        self.send_header("Location", self.path)  # of a redirection, to itself
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve_errors() -> Iterator[str]:
    """The host and port; ``http://HOST/403/x.parquet`` is answered with 403, /hang-up/ with nothing."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()

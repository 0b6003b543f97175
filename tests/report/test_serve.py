"""The server of a page that follows an experiment: for this machine alone, and for reading alone."""

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from calibrant.errors import NoDataError
from calibrant.report.serve import Server, State


@contextmanager
def serving(look: Callable[[], State], page: Callable[[State], str]) -> Iterator[Server]:
    server = Server(look, page)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(server: Server, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def test_page_is_drawn_again_only_when_the_state_changes() -> None:
    words, drawn = ["a"], []

    def page(state: State) -> str:
        drawn.append(state.word)
        return f"page of {state.word}"

    with serving(lambda: State(words[-1], f"now {words[-1]}"), page) as server:
        assert asked(server, "/")[1] == "page of a"
        assert asked(server, "/?reload")[1] == "page of a"
        assert json.loads(asked(server, "/state")[1]) == {"state": "a", "said": "now a"}
        words.append("b")
        assert json.loads(asked(server, "/state")[1])["state"] == "b"
        assert drawn == ["a"]
        assert asked(server, "/")[1] == "page of b"
    assert drawn == ["a", "b"]


def test_answers_this_machine_alone() -> None:
    with serving(lambda: State("a", ""), lambda state: "secret") as server:
        assert server.server_address[0] == "127.0.0.1"
        status, text, _ = asked(server, "/", host="evil.example:80")
        assert (status, "secret" in text) == (403, False)
        assert asked(server, "/", host=f"localhost:{server.server_port}")[:2] == (200, "secret")


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/rows.parquet", "/x//", "/state/x", "/%2e%2e/"])
def test_serves_no_other_file(path: str) -> None:
    with serving(lambda: State("a", ""), lambda state: "page") as server:
        assert asked(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_is_for_reading_alone(method: str) -> None:
    with serving(lambda: State("a", ""), lambda state: "page") as server:
        assert asked(server, "/", method)[0] == 501


def test_head_has_the_length_of_the_page_and_no_page() -> None:
    with serving(lambda: State("a", ""), lambda state: "sixé") as server:
        status, text, headers = asked(server, "/", "HEAD")
        assert (status, text, headers["Content-Length"]) == (200, "", "5")
        assert headers["Cache-Control"] == "no-store"


def test_a_page_that_cannot_be_made_says_why() -> None:
    def page(state: State) -> str:
        raise NoDataError("there is nothing to see")

    with serving(lambda: State("a", ""), page) as server:
        status, text, headers = asked(server, "/")
        assert (status, text) == (500, "there is nothing to see\n")
        assert headers["Refresh"] == "3"  # it has no script that would ask again
        assert asked(server, "/state")[0] == 200


@pytest.mark.parametrize("fails", ["look", "page"])
def test_after_a_failure_the_last_page_stays_and_goes_on(fails: str) -> None:
    words, broken = ["a"], set[str]()

    def look() -> State:
        if "look" in broken:
            raise NoDataError("just now it cannot be read")
        return State(words[-1], "")

    def page(state: State) -> str:
        if "page" in broken:
            raise NoDataError("just now it cannot be drawn")
        return f"page of {state.word}"

    with serving(look, page) as server:
        assert asked(server, "/")[1] == "page of a"
        words.append("b")
        broken.add(fails)
        assert asked(server, "/")[:2] == (200, "page of a")  # whose script then hears of b
        assert "Refresh" not in asked(server, "/")[2]
        broken.clear()
        assert asked(server, "/")[:2] == (200, "page of b")


def test_a_reader_who_has_gone_is_no_error() -> None:
    asking, gone, errors = threading.Event(), threading.Event(), []

    def page(state: State) -> str:
        asking.set()
        assert gone.wait(600)
        return "page"

    with serving(lambda: State("a", ""), page) as server:
        server.handle_error = lambda request, address: errors.append(sys.exception())  # type: ignore[method-assign]
        server.daemon_threads = False  # so that closing waits for them
        with socket.create_connection(server.server_address[:2], 600) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves at once
            reader.sendall(f"GET / HTTP/1.0\r\nHost: {server.hosts[0]}\r\n\r\n".encode())
            assert asking.wait(600)
        gone.set()
    assert errors == []


def test_a_port_that_is_taken_is_refused() -> None:
    with (
        serving(lambda: State("a", ""), lambda state: "page") as server,
        pytest.raises(NoDataError, match=rf"port {server.server_port} of 127.0.0.1"),
    ):
        Server(lambda: State("a", ""), lambda state: "page", server.server_port)
    with pytest.raises(NoDataError, match="port 70000"):
        Server(lambda: State("a", ""), lambda state: "page", 70000)

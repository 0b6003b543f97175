"""URLs that cannot be opened: one line with the reason, whatever package raised it, and no secret in any output."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant._files import atomic_write
from calibrant.calibrators import load_calibrator
from calibrant.errors import CalibrantError, CorruptFileError, InvalidInputError, NoDataError, ResourceError
from calibrant.features import read_features
from calibrant.predictions import Predictions
from made.cli import Run, in_this_process
from made.server import serve_errors


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="fsspec reads http with aiohttp")
    with serve_errors() as found:
        yield found


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return in_this_process(monkeypatch, capsys)


def write(url: str) -> None:
    with atomic_write(url) as file:
        file.write(b"x")


READERS: list[Callable[[str], Any]] = [Predictions.scan, load_calibrator, read_features]
ANSWERS: dict[str, tuple[type[CalibrantError], str]] = {
    "401": (ResourceError, r"cannot be opened: access is refused \(HTTP 401\)$"),
    "403": (ResourceError, r"cannot be opened: access is refused \(HTTP 403\)$"),
    "404": (NoDataError, r"^there is no file"),
    "429": (ResourceError, r"the server says 429 Too Many Requests$"),
    "500": (ResourceError, r"the server says 500 Internal Server Error$"),
    "599": (ResourceError, r"the server says 599 an unknown status$"),
    "302": (ResourceError, r"it redirects without end$"),
    "hang-up": (ResourceError, r"cannot be opened: Server disconnected$"),
    "200": (CorruptFileError, r"is not (a Parquet file|JSON)"),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_of_a_server_are_one_line(answer: str, host: str) -> None:
    cls, message = ANSWERS[answer]
    url = f"http://user:SECRET@{host}/{answer}/x?sig=SECRET"
    for read in READERS:
        with pytest.raises(cls, match=message) as caught:
            read(url)
        assert f"http://…@{host}/{answer}/x?…" in str(caught.value)
        assert "SECRET" not in str(caught.value)
        assert caught.value.__suppress_context__
    with pytest.raises(ResourceError, match=r"such a URL can only be read$"):
        write(url)


URLS: dict[str, tuple[type[CalibrantError], str]] = {
    "http://127.0.0.1:1/x": (ResourceError, r"127\.0\.0\.1:1/x cannot be opened: Connect call failed"),
    "http://127.0.0.1:99999/x": (ResourceError, "Port out of range"),
    "http://[::1/x": (ResourceError, "Invalid IPv6 URL"),
    "http:///x": (ResourceError, "it is not a URL"),
    "ftp://u:SECRET@127.0.0.1:1/x": (ResourceError, "Connection refused"),
    "zip://a.parquet::{folder}/none.zip": (NoDataError, "there is no file zip://"),
    "zip://a.parquet::{folder}/text": (ResourceError, "not a zip file"),
    "tar://a.parquet::{folder}/text": (ResourceError, "cannot be opened: "),
    "zip://a.parquet": (ResourceError, "Is a directory"),
    "data:text/plain,hello": (InvalidInputError, "does not name a file"),
    "dir://x": (InvalidInputError, "does not name a file"),
    "reference://x": (InvalidInputError, "does not name a file"),
    "s4://u:SECRET@x/y": (InvalidInputError, "Protocol not known: s4"),
    "git://x/y": (InvalidInputError, "Install pygit2"),
}


@pytest.mark.parametrize("url", URLS)
def test_urls_that_cannot_be_opened(url: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    cls, message = URLS[url]
    for use in (Predictions.scan, load_calibrator):
        with pytest.raises(cls, match=message) as caught:
            use(url.format(folder=tmp_path))
        assert "SECRET" not in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises((ResourceError, InvalidInputError, NoDataError)):
        write(url.format(folder=tmp_path))


@pytest.mark.slow
def test_no_verb_shows_a_secret(host: str, tmp_path: Path, calibrant: Run) -> None:
    logits = [[2.0, 0.0], [0.0, 1.0], [3.0, 1.0]] * 30
    val, test, out = (f"memory://key:SECRET@made/{name}" for name in ("val.parquet", "test.parquet", "t.json"))
    Predictions.from_logits(logits, [0, 1, 1, 0, 0] * 18).save(val)
    Predictions.from_logits(logits[1:], ([1, 1, 0, 0, 0] * 18)[1:]).save(test)
    bad = f"http://user:SECRET@{host}/500/x.parquet?sig=SECRET"
    commands: list[tuple[int, list[Any]]] = [
        (0, ["audit", val, "--compare", val]),
        (0, ["audit", val, "--json"]),
        (0, ["fit", val, "-o", out]),
        (0, ["fit", val, "-o", out, "--json"]),
        (0, ["apply", out, test, "-o", "memory://key:SECRET@made/out.parquet"]),
        (0, ["compare-calibrators", val, test, "--calibrators", "temperature"]),
        (2, ["audit", bad]),
        (2, ["audit", f"--{bad}"]),
        (2, ["fit", bad, "-o", out]),
        (2, ["fit", val, "-o", bad]),
        (2, ["apply", bad, val, "-o", out]),
        (2, ["compare-calibrators", val, bad]),
        (2, ["corrupt", bad, "fog", 3, "-o", tmp_path / "fog"]),
        *((2, [*verb, bad]) for verb in (["run"], ["table"], ["report"], ["figure", "severity"], ["predict"])),
    ]
    for code, command in commands:
        found = calibrant(*command)
        assert found.code == code, (command, found)
        assert "SECRET" not in found.out + found.err, command
        assert "Traceback" not in found.err


def test_a_url_with_a_space_is_not_shown() -> None:
    """No one can tell where its password ends."""
    with pytest.raises(InvalidInputError, match=r"^a URL must not have spaces: write %20$"):
        Predictions.scan("https://user:SEC RET@127.0.0.1:1/x.parquet?sig=SECRET")

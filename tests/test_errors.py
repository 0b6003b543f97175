"""Messages of errors: one line without control characters and without the secrets of URLs, here and in workers."""

import pickle

import pytest

from calibrant import errors
from calibrant.errors import CalibrantError, printable, without_secrets

CLASSES = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, CalibrantError)]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_message_is_one_line_without_secrets(cls: type[CalibrantError]) -> None:
    error = cls("s3://KEY:SECRET@bucket/a\x1b[31m\n\u202e is not there")
    shown = r"s3://…@bucket/a\x1b[31m\n\u202e is not there"
    assert str(error).startswith(shown)
    assert "SECRET" not in repr(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_a_terminal_would_obey_is_shown() -> None:
    for char in (
        "\x1b",
        "\x07",
        "\r",
        "\x9b",
        "\x85",
        "\u2028",
        "\u202a",
        "\u202e",
        "\u2066",
        "\u2069",
        "\x7f",
        "\udc80",
    ):
        assert printable(f"a{char}b").isprintable()
        assert printable(f"a{char}b") == f"a{char.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:ab/cd@bucket/a", "s3://…@bucket/a"),
        ("s3://KEY:a?b#c@bucket/a", "s3://…@bucket/a"),
        ("https://token@x.org/a", "https://…@x.org/a"),
        ("--compare=s3://key:secret@bucket/a", "--compare=s3://…@bucket/a"),
        ("simplecache::s3://key:secret@bucket/a", "simplecache::s3://…@bucket/a"),
        ("zip://a.parquet::https://u:p@x.org/a.zip?sig=1", "zip://a.parquet::https://…@x.org/a.zip?…"),
        ("https://x.org/a?X-Amz-Signature=a'b&b=1", "https://x.org/a?…"),
        ("https://x.org/a#access_token=1", "https://x.org/a#…"),
        ("http://user%40x:p%40ss@x.org:80/a%20b?sig=1", "http://…@x.org:80/a%20b?…"),
        ("http:/user:secret@x.org/a?sig=1", "http:/…@x.org/a?…"),
        ("C:/me@home/a?b", "C:/me@home/a?b"),
        ("no ('https://u:p@x.org/a?sig=1') here", "no ('https://…@x.org/a?…') here"),
        ("abfs://c@x.dfs.core.windows.net/a?sv=1&sig=x%2B: 403", "abfs://…@x.dfs.core.windows.net/a?…: 403"),
        ("two: s3://k:s@b/a, gs://t@b/c?x=1.", "two: s3://…@b/a, gs://…@b/c?…."),
        ("://" + "a" * 10**5 + " " + "b" * 10**5 + " ://", "://" + "a" * 10**5 + " " + "b" * 10**5 + " ://"),
        ("hf://datasets/me/rows@main/a.parquet", "hf://datasets/me/rows@main/a.parquet"),
        ("data/year=202?/month=01/*.parquet", "data/year=202?/month=01/*.parquet"),
        ("me@home.org/file?", "me@home.org/file?"),
    ],
)
def test_secrets_of_urls_are_not_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown

"""Names of files as they may be shown: a URL without its passwords and signatures."""

import re

CHAINED = re.compile(r"::(?=[A-Za-z][A-Za-z0-9+.-]*://)")  # of fsspec: simplecache::s3://…


def without_secrets(argument: str) -> str:
    """One argument or file; of a URL neither what stands before the host nor the query is shown.

    What is no URL stays as it is. Passwords need not be encoded: "/", "?" and "#" do not end one that an "@" follows.

    >>> without_secrets("s3://key:sec/ret@bucket/a.parquet"), without_secrets("https://x.org/a?sig=1")
    ('s3://…@bucket/a.parquet', 'https://x.org/a?…')
    """
    if "://" not in argument:
        return argument
    return "::".join(map(_without_secrets, CHAINED.split(argument)))


def _without_secrets(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    before, at, after = rest.rpartition("@")
    # A path may hold an "@" too (a branch, a version), but not after a colon, unless there is a port: better safe.
    if at and (":" in before or "/" not in before):
        rest = f"…@{after}"
    path, query, asked = rest.partition("?")
    if query and asked:
        rest = f"{path}?…"
    path, fragment, named = rest.partition("#")
    if fragment and "=" in named:
        rest = f"{path}#…"
    return scheme + mark + rest

import pytest
from cli_run import Ran, Run

from calibrant import cli


@pytest.fixture
def calibrant(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`main` in this process, on a terminal 200 columns wide unless told."""
    app = cli.app

    def run(*arguments: object, width: int = 200) -> Ran:
        monkeypatch.setenv("COLUMNS", str(width))
        tokens = list(map(str, arguments))
        monkeypatch.setattr(cli, "app", lambda **options: app(tokens, **options))
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        assert isinstance(code, int)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run

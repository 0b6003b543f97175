"""What the tab key offers, in the shells that are here."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from cli_run import in_this_process

from calibrant import CALIBRATORS, CORRUPTIONS, LOSSES, METRICS
from calibrant.cli import app
from calibrant.cli.completion import SETTINGS, TABLES, VALUES, Shell, script
from calibrant.data import DATASETS
from calibrant.data.sources import SOURCES
from calibrant.report.figures import FIGURES
from calibrant.training import Settings

SHELLS = get_args(Shell)


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        (folder / shell).write_text(script(shell), encoding="utf-8", newline="\n")
    return {shell: folder / shell for shell in SHELLS}


def test_the_parameters_are_there() -> None:
    for verb, parameters in VALUES.items():
        found = app["data"][verb] if verb in ("check", "fetch") else app[verb]
        assert found.default_command is not None
        assert set(parameters) <= set(inspect.signature(found.default_command).parameters), verb
        assert set(parameters.values()) <= {*TABLES, ""}, verb
    assert set(SETTINGS) <= set(Settings.model_fields)


def in_bash(path: Path, *words: str) -> list[str]:
    program = f"""
        source '{path}'
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _calibrant
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(["bash", "-c", program, "bash", *words], capture_output=True, text=True, timeout=600)
    assert ran.stderr == ""
    return ran.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None or sys.platform == "win32", reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("fit val.parquet --method ", list(CALIBRATORS), id="calibrators"),
        pytest.param("train --loss max", [name for name in LOSSES if name.startswith("max")], id="losses"),
        pytest.param("train --data ", list(DATASETS), id="data"),
        pytest.param("train --precision ", ["32", "bf16", "16"], id="choices of a setting"),
        pytest.param("audit --metrics ", list(METRICS), id="metrics"),
        pytest.param("corrupt photos ", list(CORRUPTIONS), id="corruptions"),
        pytest.param("figure ", [*FIGURES, "all"], id="figures"),
        pytest.param("data fetch ", list(SOURCES), id="sources"),
        pytest.param("data ", ["list", "fetch", "check", "where"], id="verbs of data"),
        pytest.param("solve --form ", ["mean", "variance", "mean_variance", "prior"], id="types"),
        pytest.param("table runs/demo --name ", ["1", "2", "appendix"], id="tables"),
        pytest.param("run --d", ["--dry-run"], id="options"),
        pytest.param("aud", ["audit"], id="verbs"),
        pytest.param("--inst", ["--install-completion"], id="flags"),
        pytest.param("audit ", [], id="files are left to the shell"),
    ],
)
def test_bash_offers(scripts: dict[str, Path], line: str, expected: list[str]) -> None:
    found = in_bash(scripts["bash"], "calibrant", *line.split(" "))
    assert [word for word in found if word.startswith(line.split(" ")[-1])] == found == expected


def test_bash_completes_files_itself(scripts: dict[str, Path]) -> None:
    text = scripts["bash"].read_text(encoding="utf-8")
    assert text.endswith("complete -o default -F _calibrant calibrant\n")
    assert "compgen -f" not in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_syntax_is_that_of_the_shell(scripts: dict[str, Path], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    ran = subprocess.run([shell, "-n", scripts[shell]], capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["zsh", "fish", "powershell"])
def test_other_shells_have_the_names_too(scripts: dict[str, Path], shell: str) -> None:
    text = scripts[shell].read_text(encoding="utf-8")
    for name in ("density_aware", "maxent_mean_variance", "glass_blur", "risk_coverage", "adaece", "tiny_imagenet_c"):
        assert name in text


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_offers(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "frozen.parquet").touch()
    offers = {}
    for line in ("calibrant corrupt photos fr", "calibrant audit fr"):
        command = ["fish", "--no-config", "-c", f"source '{scripts['fish']}'; complete -C '{line}'"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600)
        offers[line] = [found.split("\t")[0] for found in ran.stdout.splitlines()]
    assert offers == {"calibrant corrupt photos fr": ["frost"], "calibrant audit fr": ["frozen.parquet"]}


def test_install_writes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    calibrant = in_this_process(monkeypatch, capsys)
    (tmp_path / ".bashrc").write_text("alias l=ls")
    place = tmp_path / ".local" / "share" / "bash-completion" / "completions" / "calibrant"
    for _ in range(2):
        said = calibrant("--install-completion", "--shell", "bash").done()
        assert said == f"wrote {place}; new bash sessions complete calibrant\n"
    assert place.read_text(encoding="utf-8") == calibrant("--show-completion", "bash").done()
    lines = (tmp_path / ".bashrc").read_text().splitlines()
    assert lines[0] == "alias l=ls"
    assert sum(str(place) in line for line in lines) == 1


def test_install_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    calibrant = in_this_process(monkeypatch, capsys)
    (tmp_path / "file").touch()
    calibrant("--show-completion", "tcsh").refused("tcsh")
    calibrant("--install-completion", "--shell", "fish", "-o", tmp_path / "file" / "x").refused(
        "the script cannot be written"
    )


def test_a_shell_that_is_not_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from cyclopts.completion import detect

    def unknown() -> str:
        raise detect.ShellDetectionError

    monkeypatch.setattr(detect, "detect_shell", unknown)
    in_this_process(monkeypatch, capsys)("--show-completion").refused(
        "the shell is not known: name one of zsh, bash, fish, powershell"
    )

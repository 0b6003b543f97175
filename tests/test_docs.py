"""The documentation keeps its promises: examples run and print what is shown, commands exist, links lead somewhere."""

import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from markdown.extensions.toc import slugify

import calibrant as cb
from calibrant import cli
from calibrant.data import DATASETS
from calibrant.training import Settings, read_settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# pages that are one session: blocks share a namespace, and commands run too; elsewhere each block runs on its own
SESSIONS = [PAGES[0], DOCS / "quickstart.md", DOCS / "comparison.md", DOCS / "deploy.md"]
SESSIONS += [*DOCS.glob("tutorials/*.md"), *DOCS.glob("concepts/*.md")]
TABLES: list[dict[str, Any]] = [cb.LOSSES, cb.METRICS, cb.CALIBRATORS, cb.CORRUPTIONS, DATASETS]
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


class Block(NamedTuple):
    """A fenced block of a page, the output that is shown directly under it, and the file that it is the text of."""

    language: str
    text: str
    output: str | None
    file: str | None
    runs: bool  # False after a comment that says why tests cannot run it


def read_blocks(page: Path) -> list[Block]:
    skip, output = r"(<!-- not run: .+? -->\n\1)?", r"(?:\n?\1```text\n(.*?)^\1```)?"
    fence = re.compile(rf'^( *){skip}```(\w+)(?: title="(.+?)")?\n(.*?)^\1```\n{output}', re.DOTALL | re.MULTILINE)
    found = []
    for indent, skipped, language, file, text, shown in fence.findall(page.read_text(encoding="utf-8")):
        text = re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        found.append(Block(language, text, shown or None, file or None, not skipped))
    return found


def commands(block: Block) -> Iterator[tuple[list[str], int]]:
    """The commands of a shell block, as words, with the exit code that a comment at their end expects."""
    for line in block.text.replace("\\\n", " ").splitlines():
        expected = re.search(r"# exit code (\d+)", line)
        words = shlex.split(line, comments=True)
        if words:
            yield words[: words.index(">")] if ">" in words else words, int(expected[1]) if expected else 0


@pytest.fixture
def unchanged_tables() -> Iterator[None]:
    """Remove what a page adds to the tables, and the modules that it writes."""
    before, modules = [dict(table) for table in TABLES], set(sys.modules)
    yield
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
    for name in {"lab", "lab_calibrant", "apply_calibrator"} & (set(sys.modules) - modules):
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:independent is deprecated")  # of what netcal calls
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")  # of what torch.onnx.export calls
@pytest.mark.usefixtures("unchanged_tables")
@by_page
def test_blocks_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    namespace: dict[str, Any] = {"__name__": "__documentation__"}
    for block in read_blocks(page):
        if block.file is not None:
            with (tmp_path / block.file).open("a") as file:
                file.write(block.text)
        elif block.language == "python" and block.runs:
            if page not in SESSIONS:
                namespace = {"__name__": "__documentation__"}
            exec(compile(block.text, page.name, "exec"), namespace)
        elif block.language == "sh" and block.runs and page in SESSIONS:
            for words, expected in commands(block):
                assert run(words, monkeypatch) == expected, (words, capsys.readouterr().err)
        else:
            continue
        printed = capsys.readouterr().out
        if block.output is not None:
            assert_printed(printed, block.output)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command of ours, or of a Python file, in this process."""
    if words[0] == "python":
        return exit_code(lambda: runpy.run_path(words[1], run_name="__main__"), words[2:], monkeypatch)
    assert words[0] == "calibrant", f"{words[0]} cannot be run in tests: say <!-- not run: why --> before the block"
    tokens: list[str] = []
    for word in words[1:]:
        tokens += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return exit_code(cli.main, tokens, monkeypatch)


def exit_code(program: Callable[[], object], arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    app = cli.app
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", "200")
        patched.setattr(cli, "app", lambda **options: app(arguments, **options))
        try:
            program()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def assert_printed(printed: str, shown: str) -> None:
    """The same words, with numbers that may differ a little on another machine; a line … stands for anything."""
    words = words_of(printed)
    parts = [words_of(part) for part in re.split(r"^…$", shown, flags=re.MULTILINE)]
    if len(parts) == 1:
        assert alike(words, parts[0]), (printed, shown)
    for part in parts:
        starts = range(len(words) - len(part) + 1)
        assert any(alike(words[start : start + len(part)], part) for start in starts), (printed, part)


def words_of(text: str) -> list[str]:
    return [word for word in text.split() if word.strip("─<")]


def alike(printed: list[str], shown: list[str]) -> bool:
    if [NUMBER.sub("#", word) for word in printed] != [NUMBER.sub("#", word) for word in shown]:
        return False
    pairs = zip(NUMBER.findall(" ".join(printed)), NUMBER.findall(" ".join(shown)), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=0.1, abs=0.03) for a, b in pairs)


@by_page
def test_every_command_exists(page: Path) -> None:
    for block in read_blocks(page):
        for words, _ in commands(block) if block.language == "sh" else ():
            ours = [i for i, word in enumerate(words) if word in ("calibrant", "lab_calibrant.py")]
            if ours and words[0] != "pip" and "--install-completion" not in words:  # which would write into the home
                cli.app.parse_args(words[ours[0] + 1 :], exit_on_error=False, print_error=False)


def prose_of(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@by_page
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+?)\s*$", prose_of(found), re.MULTILINE)
            anchors = {slugify(re.sub(r"[`*]", "", title), "-") for title in titles}
            assert anchor in anchors, f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = re.findall(r"[\w/]+\.md", str(nav))
    assert sorted(pages) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES[1:])


def test_pages_load_nothing_from_other_machines() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    assert "offline" in settings["plugins"]
    assert "extra_javascript" not in settings
    assert all("http" not in style for style in settings["extra_css"])
    assert not re.search(r"url\(|@import", (DOCS / "css" / "site.css").read_text(encoding="utf-8"))
    for page in PAGES[1:]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"!\[[^]]*\]\(https?:|<(?:img|script|iframe|link)\b", text), page.name
    for image in (DOCS / "images").iterdir():
        assert image.stat().st_size <= 300_000, image.name


def test_fidelity_rows_name_tests_that_exist() -> None:
    table = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", table))
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named <= defined, sorted(named - defined)


def test_settings_of_the_training_page_are_valid() -> None:
    files = [block.text for block in read_blocks(DOCS / "training.md") if block.language == "toml"]
    assert files
    for text in files:
        Settings.model_validate(tomllib.loads(text))
    assert read_settings(ROOT / "examples" / "train.toml").loss == "maxent_mean"


def test_workflows_of_the_ci_tutorial_call_existing_commands() -> None:
    files = [block.text for block in read_blocks(DOCS / "tutorials" / "ci.md") if block.language == "yaml"]
    workflow, hooks = map(yaml.safe_load, files)
    gate = next(step["run"] for step in workflow["jobs"]["audit"]["steps"] if "--fail-if" in step.get("run", ""))
    for line in (gate, hooks["repos"][0]["hooks"][0]["entry"]):
        cli.app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)

"""What the prose promises: examples run, commands exist, links and anchors lead somewhere, every file is on the map."""

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
# pages whose blocks are one session: they run in order, in one namespace and one folder, commands included
SESSIONS = [DOCS / "quickstart.md", DOCS / "comparison.md", *sorted(DOCS.glob("tutorials/*.md"))]
SESSIONS += sorted(DOCS.glob("concepts/*.md"))
TABLES: list[dict[str, Any]] = [cb.LOSSES, cb.METRICS, cb.CALIBRATORS, cb.CORRUPTIONS, DATASETS]
INSTALLING = ("--install-completion",)  # would write into the home of whoever runs the tests


class Block(NamedTuple):
    """A fenced block of a page, and whether a comment before it says that tests cannot run it."""

    language: str
    text: str
    runs: bool


def blocks(page: Path) -> list[Block]:
    fence = re.compile(r"^( *)(?:<!-- not run: .+? -->\n\1)?```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
    found = []
    for match in fence.finditer(page.read_text(encoding="utf-8")):
        text = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
        found.append(Block(match[2], text, "<!-- not run" not in match[0][: match[0].index("```")]))
    return found


def commands(block: Block) -> Iterator[tuple[list[str], int]]:
    """The commands of a shell block, as words, with the exit code that a comment at their end expects."""
    for line in block.text.replace("\\\n", " ").splitlines():
        expected = re.search(r"# exit code (\d+)", line)
        words = shlex.split(line, comments=True)
        if words:
            yield words[: words.index(">")] if ">" in words else words, int(expected[1]) if expected else 0


ALONE = [
    pytest.param(block.text, id=f"{page.relative_to(ROOT).as_posix()}-{i}")
    for page in PAGES
    if page not in SESSIONS
    for i, block in enumerate(block for block in blocks(page) if block.language == "python")
]


@pytest.mark.parametrize("block", ALONE)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "<documentation>", "exec"), {"__name__": "__documentation__"})


@pytest.fixture
def unchanged_tables() -> Iterator[None]:
    """What a page adds to the tables, and the modules that it writes, are gone after it."""
    before, modules = [dict(table) for table in TABLES], set(sys.modules)
    yield
    for table, entries in zip(TABLES, before, strict=True):
        table.clear()
        table.update(entries)
    for name in set(sys.modules) - modules:
        if name in ("lab", "lab_calibrant"):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore:independent is deprecated")  # of what netcal calls
@pytest.mark.usefixtures("unchanged_tables")
@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_session_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("CALIBRANT_DATA", raising=False)
    namespace: dict[str, Any] = {"__name__": "__documentation__"}
    printed = None
    for block in blocks(page):
        if block.language == "text" and printed is not None:
            assert_alike(printed, block.text)
        printed = None
        if block.language == "python" and block.runs:
            capsys.readouterr()
            exec(compile(block.text, page.name, "exec"), namespace)
            printed = capsys.readouterr().out
        if block.language == "sh" and block.runs:
            for words, expected in commands(block):
                assert run(words, monkeypatch) == expected, (words, capsys.readouterr().err)


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command of ours, or of a Python file, in this process."""
    if words[0] == "python":
        return code_of(lambda: runpy.run_path(words[1], run_name="__main__"), words[2:], monkeypatch)
    assert words[0] == "calibrant", f"{words[0]} cannot be run in tests: say <!-- not run: why --> before the block"
    return code_of(cli.main, [path for word in words[1:] for path in globbed(word)], monkeypatch)


def code_of(program: Callable[[], object], arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    app = cli.app
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", "200")
        patched.setattr(cli, "app", lambda **options: app(arguments, **options))
        try:
            program()
        except SystemExit as stop:
            return int(stop.code or 0)
    return 0


def globbed(word: str) -> list[str]:
    """As a shell would have it."""
    return sorted(map(str, Path().glob(word))) if "*" in word else [word]


def assert_alike(printed: str, shown: str) -> None:
    """The same words, and numbers that another machine may have rounded or trained a little otherwise."""
    number = r"[-+]?\d+(?:\.\d+)?"
    assert re.sub(number, "#", printed).split() == re.sub(number, "#", shown).split()
    for ours, theirs in zip(re.findall(number, printed), re.findall(number, shown), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=0.1, abs=0.03), (printed, shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_the_prose_exists(page: Path) -> None:
    for block in blocks(page):
        for words, _ in commands(block) if block.language == "sh" else ():
            ours = [i for i, word in enumerate(words) if word in ("calibrant", "lab_calibrant.py")]
            if ours and words[0] != "pip" and not set(INSTALLING) & set(words):
                cli.app.parse_args(words[ours[0] + 1 :], exit_on_error=False, print_error=False)


def anchors(page: Path) -> set[str]:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {slugify(re.sub(r"[`*]", "", title), "-") for title in re.findall(r"^#+ (.+?)\s*$", prose, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(inner)

    assert sorted(pages(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES[1:])


def test_pages_ask_no_other_machine_for_anything() -> None:
    """Fonts and scripts are the theme's own; images are files."""
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


def test_the_reference_has_every_public_name() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    shown = set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))
    homes = {name: cb._HOMES.get(name) for name in cb.__all__}
    for name, home in homes.items():  # the function of a module that has its name is looked for there
        assert home is None or {f"{home}.{name}", f"{home}.{name}.{name}"} & shown, name
    for name in (name for name, home in homes.items() if home is None):
        assert any(path.startswith(f"calibrant.{name}") for path in shown), name


def test_formulas_of_docstrings_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from hooks import VERBS, on_page_content, on_page_markdown, readable

    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    formulas = [inline or shown for inline, shown in re.findall(r":math:`(.+?)`|\.\. math:: (.+?)\n\n", sources, re.S)]
    assert len(formulas) > 50
    for latex in formulas:
        assert not re.search(r"[\\{}_^]", readable(latex)), latex
    assert readable(r"\frac{n_b}{n} (r_i - 1)^2") == "n<sub>b</sub>/n (r<sub>i</sub> − 1)<sup>2</sup>"
    assert on_page_content(r"<p>.. math:: s^<em>} = s^</em></p>".replace("}", "")).startswith(
        '<p class="formula">s<sup>'
    )
    page = on_page_markdown(f"# Command line\n\n{VERBS}")
    assert "## calibrant audit" in page
    assert "`--fail-if STR...`" in page


def test_fidelity_rows_name_tests_that_exist() -> None:
    table = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", table))
    defined = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named
    assert named <= defined, sorted(named - defined)


def test_files_of_settings_are_read() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "training.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        Settings.model_validate(tomllib.loads(block))
    assert read_settings(ROOT / "examples" / "train.toml").loss == "maxent_mean"


def test_files_of_ci_are_yaml() -> None:
    found = [yaml.safe_load(block.text) for block in blocks(DOCS / "tutorials" / "ci.md") if block.language == "yaml"]
    workflow, hooks = found
    gate = next(step["run"] for step in workflow["jobs"]["audit"]["steps"] if "--fail-if" in step.get("run", ""))
    for line in (gate, hooks["repos"][0]["hooks"][0]["entry"]):
        cli.app.parse_args(shlex.split(line)[1:], exit_on_error=False, print_error=False)

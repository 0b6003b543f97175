"""Packaging: one version, the contents of wheel and sdist, the packaged demo, the Makefile and the workflows."""

import contextlib
import fnmatch
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from hatchling import build
from packaging.metadata import Metadata
from packaging.requirements import Requirement

import calibrant
from made.cli import MAX_SECONDS, Run

ROOT = Path(__file__).parents[1]
NAME = f"calibrant-{calibrant.__version__}"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    with contextlib.chdir(ROOT):  # where the back-end looks for the project
        build.build_wheel(str(folder))
        build.build_sdist(str(folder))
        build.build_editable(str(folder / "editable"))
    return folder


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == calibrant.__version__
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert changes[0] == calibrant.__version__
    assert PROJECT["dynamic"] == ["version"]
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [str(page) for page in pages if f" {calibrant.__version__}" in page.read_text(encoding="utf-8")] == []


PACKAGED = {"calibrant/experiments/demo.toml", "calibrant/experiments/schema.json"}


@pytest.mark.slow
def test_wheel_contains_the_package_only(built: Path) -> None:
    found = names_in(built / f"{NAME}-py3-none-any.whl")
    package = ROOT / "src" / "calibrant"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    wanted = {path.relative_to(package.parent).as_posix() for path in files} | PACKAGED
    about = {f"{NAME}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    about |= {f"{NAME}.dist-info/licenses/LICENSE"}
    assert found == wanted | about
    for name in ("py.typed", "data/files/fashion_mnist_mini.npz", "data/files/LICENSE.fashion_mnist"):
        assert f"calibrant/{name}" in found
    assert any(name.endswith(".html.j2") for name in found)
    assert (built / f"{NAME}-py3-none-any.whl").stat().st_size < 8_000_000


def test_metadata_are_valid(built: Path) -> None:
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as archive:
        metadata = Metadata.from_email(archive.read(f"{NAME}.dist-info/METADATA"), validate=True)
    assert str(metadata.version) == calibrant.__version__
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.description_content_type == "text/markdown"
    assert set(PROJECT["optional-dependencies"]) == set(metadata.provides_extra or [])


def test_editable_install_has_one_copy_of_everything(built: Path) -> None:
    found = names_in(next((built / "editable").glob("*.whl")))
    assert {name for name in found if not name.startswith(NAME)} == {"_calibrant.pth"}


def test_sdist_contains_tests_and_build_files(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        found = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    wanted = {"CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "constraints.txt"}
    wanted |= {"pyproject.toml", "mkdocs.yml", "experiments/demo.toml", ".github/workflows/test.yml"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    assert wanted <= found
    assert not [name for name in found if name.startswith(("data/", "runs/", "site/", ".venv/", "dist/"))]


def test_run_without_a_file_runs_the_demo(calibrant: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrant.experiments import files, read_experiment, run

    monkeypatch.chdir(tmp_path)
    assert "27 runs in runs" in calibrant("run", "--dry-run").done()
    assert run.demo_file() == ROOT / "experiments" / "demo.toml"
    assert read_experiment(run.demo_file()).output == str(Path("runs") / "demo")
    installed = tmp_path / "calibrant" / "experiments" / "demo.toml"
    monkeypatch.setattr(files, "__file__", str(installed.with_name("files.py")))
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert run.demo_file() == installed


WITHOUT_EXTRAS = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in ("altair", "pydantic"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
from calibrant.cli import main
main()
"""


@pytest.mark.slow
def test_run_without_its_extras_names_them() -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, "run"]
    environment = os.environ | {"COLUMNS": "200"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=MAX_SECONDS, env=environment)
    expected = (
        "calibrant: running an experiment needs the extras report and train: pip install 'calibrant[report,train]'\n"
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", expected)


def test_make_lists_and_cleans_everything() -> None:
    listed = re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)
    printed = subprocess.check_output(["make", "--no-print-directory", "help"], cwd=ROOT, text=True)
    assert [line.split()[1] for line in printed.splitlines()] == listed
    cleaned = re.search(r"^clean:.*\n\trm -rf (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    kept = {"__pycache__", "*.egg-info", "/data"}  # find removes the first, and a user's data sets stay
    patterns = {name.rstrip("/") for name in ignored} - kept
    assert {pattern for pattern in patterns if fnmatch.filter(cleaned, pattern)} == patterns
    assert all(any(fnmatch.fnmatch(name, pattern) for pattern in patterns) for name in cleaned)


def test_workflows_call_make_on_every_declared_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    prefix = "Programming Language :: Python :: "
    named = [name.removeprefix(prefix) for name in PROJECT["classifiers"] if name.startswith(f"{prefix}3.")]
    assert matrix["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    commands = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    called = {command.split()[1] for command in commands if command.startswith("make ")}
    assert called == {"test", "test-oldest", "docs", "dist"} <= set(TARGETS)


def test_constraints_meet_the_requirements() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {pin.name: pin for pin in map(Requirement, (line for line in lines if not line.startswith("#")))}
    needs = {need.name: need for need in map(Requirement, PROJECT["dependencies"])}
    for name, pin in pins.items():
        assert needs[name].specifier.contains(str(pin.specifier).removeprefix("=="))

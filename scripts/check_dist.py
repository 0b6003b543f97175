"""Holds the wheel and the sdist in dist/ against their promises, and runs the wheel in an empty environment."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import calibrant

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
MAX_BYTES = 8_000_000
NAME = f"calibrant-{calibrant.__version__}"
# one run of the demonstration; all of it: make dist ONLY=
ONLY = os.environ.get("ONLY", "loss=maxent_mean,seed=0,label_smoothing=0")


def main() -> None:
    """Exit with a sentence where a promise is broken."""
    wheel, sdist = ROOT / "dist" / f"{NAME}-py3-none-any.whl", ROOT / "dist" / f"{NAME}.tar.gz"
    check_wheel(wheel)
    check_sdist(sdist)
    with tempfile.TemporaryDirectory() as folder:
        check_rebuilt(wheel, Path(folder) / "again")
        check_installed(wheel, Path(folder) / "environment", Path(folder) / "empty")


PACKAGED = {"calibrant/experiments/demo.toml", "calibrant/experiments/schema.json"}


def wanted() -> set[str]:
    """What the wheel must hold beside its metadata: every file of the package, the demonstration and the schema."""
    package = ROOT / "src" / "calibrant"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(package.parent).as_posix() for path in files} | PACKAGED


def check_wheel(wheel: Path) -> None:
    """Size and contents."""
    require(wheel.stat().st_size < MAX_BYTES, f"{wheel.name} has {wheel.stat().st_size:,} bytes")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {f"{NAME}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")}
    metadata |= {f"{NAME}.dist-info/licenses/LICENSE"}
    missing, strange = sorted((wanted() | metadata) - names), sorted(names - wanted() - metadata)
    require(not missing, f"{wheel.name} lacks {', '.join(missing)}")
    require(not strange, f"{wheel.name} should not hold {', '.join(strange)}")
    print(f"{wheel.name}: {len(names)} files, {wheel.stat().st_size / 1e6:.1f} MB")


def check_sdist(sdist: Path) -> None:
    """Every file that git knows, or would know, is in the sdist."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    missing = sorted(name for name in listed if (ROOT / name).is_file() and name not in names)
    require(not missing, f"{sdist.name} lacks {', '.join(missing)}")
    print(f"{sdist.name}: {len(names)} files, {sdist.stat().st_size / 1e6:.1f} MB")


def check_rebuilt(wheel: Path, folder: Path) -> None:
    """The wheel came from the sdist; from the work tree the same bytes come."""
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT))
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, folder / wheel.name)]
    require(sums[0] == sums[1], f"{wheel.name} from the sdist differs from that of the work tree")
    print(f"sdist and work tree build the same wheel, SHA-256 {sums[0]}")


def check_installed(wheel: Path, environment: Path, empty: Path) -> None:
    """`calibrant run`, with no file, in an environment and a folder that have nothing else."""
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    program = python.with_name("calibrant.exe" if os.name == "nt" else "calibrant")
    limits = ("-c", str(ROOT / "constraints.txt"))
    uv("pip", "install", "--quiet", "--python", str(python), *limits, str(wheel))
    empty.mkdir()
    printed = in_empty(empty, program, "--version").stdout.strip()
    require(printed == calibrant.__version__, f"the wheel says that it is {printed}")
    refused = in_empty(empty, program, "run", code=2).stderr.strip()
    expected = (
        "calibrant: running an experiment needs the extras report and train: pip install 'calibrant[report,train]'"
    )
    require(refused == expected, f"without its extras, calibrant run says {refused}")
    uv("pip", "install", "--quiet", "--python", str(python), *limits, f"calibrant[report,train] @ {wheel.as_uri()}")
    start = time.monotonic()
    printed = in_empty(empty, program, "run", *(["--only", ONLY] if ONLY else [])).stdout
    print(printed, end="")
    require("Accuracy" in printed, "calibrant run printed no table")
    for name in ("report.html", "rows.parquet", "experiment.toml"):
        require((empty / "runs" / "demo" / name).is_file(), f"calibrant run wrote no {name}")
    print(f"the wheel works in an environment of its own: {time.monotonic() - start:.0f} s")


def in_empty(folder: Path, program: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program where nothing of this environment is seen."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CALIBRANT_DATA")
    seen = {name: value for name, value in os.environ.items() if name not in hidden}
    seen |= {"PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}  # threads that wait for each other crawl on a busy machine
    ran = subprocess.run([program, *arguments], cwd=folder, env=seen, capture_output=True, encoding="utf-8")
    require(ran.returncode == code, f"calibrant {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr}")
    return ran


def uv(*arguments: str) -> None:
    subprocess.run([BIN / "uv", *arguments], check=True)


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"dist: {otherwise}")


if __name__ == "__main__":
    main()

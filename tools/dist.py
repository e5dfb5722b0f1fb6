"""Build the wheel and the source archive, and test both away from the checkout.

    python tools/dist.py                                  # build and check, then Python 3.10 and the newest found here
    python tools/dist.py --python python3.12 --quick      # one Python; the quick start alone, without the tests
    python tools/dist.py --lowest                         # the oldest versions that pyproject.toml allows

In order: 1. build both archives with their checks by twine; 2. list what the wheel holds and its size, and compare it
with src/; 3. for each Python make an empty environment, install the wheel, and run the commands of docs/quickstart.md
in an empty folder; 4. install the extras that `make test` installs, and run the tests of the unpacked source archive,
from which src/ has been removed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TEST_TOOLS = re.search(r"^test = \[(.*)\]$", PROJECT, flags=re.MULTILINE)
assert TEST_TOOLS
EXTRAS = re.search(r'--editable "\.\[(.*?)\]" --group test', (ROOT / "Makefile").read_text(encoding="utf-8"))
assert EXTRAS
LARGEST_WHEEL = 3_000_000
"""In bytes. A wheel beyond this holds something by mistake: data, or a second copy of the charts' library."""

# Other versions of NumPy and SciPy give other last bits, which move a figure of the page here and there. So the
# commands must succeed and leave their files; lines that differ are counted. Their text is tested in the checkout.
QUICK_START = """
import sys
from pathlib import Path
unpacked, empty = map(Path, sys.argv[1:])
sys.path.insert(0, str(unpacked / "tools"))
import run_page
steps = run_page.run(unpacked / "docs" / "quickstart.md", empty)
different = sum(len(run_page.differences(step)) for step in steps)
print(f"quick start: {len(steps)} blocks of commands, {different} lines differ from the page")
made = [name for name in ("lists.csv", "report.html", "even.fairmf") if not (empty / name).exists()]
if steps[-1].code or made:
    sys.exit(f"{steps[-1].commands}{steps[-1].printed} missing: {made}")
"""


def main() -> int:
    """Build, check, and test with every Python asked for; exit code 1 where something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="an interpreter; may be repeated")
    parser.add_argument("--lowest", action="store_true", help="install the lowest versions that are allowed")
    parser.add_argument("--quick", action="store_true", help="run the quick start alone, not the tests")
    parser.add_argument("--folder", type=Path, default=ROOT / "dist", help="for the archives")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="folders or files of tests")
    options = parser.parse_args()
    wheel, archive = build(options.folder)
    show(wheel)
    pythons = options.python or ([found("3.10")] if options.lowest else [found("3.10"), newest()])
    failed = []
    for python in dict.fromkeys(p for p in pythons if p):
        started = time.perf_counter()
        problem = try_on(python, wheel, archive, options)
        print(f"{version(python)}: {problem or 'all passed'} ({time.perf_counter() - started:.0f} s)", flush=True)
        failed += [problem] if problem else []
    print(f"not found here, so not tried: Python {', '.join(v for v in VERSIONS if not found(v)) or 'none'}")
    return 1 if failed else 0


def build(folder: Path) -> tuple[Path, Path]:
    """Build both archives into an empty folder, the wheel from the source archive as pip would, and check them."""
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", folder, ROOT])
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", wheel, archive])
    return wheel, archive


def show(wheel: Path) -> None:
    """List the folders and the largest files of the wheel, and make sure that it holds exactly src/fairmf."""
    with zipfile.ZipFile(wheel) as opened:
        files = {info.filename: info.file_size for info in opened.infolist()}
    package = {name for name in files if ".dist-info/" not in name}
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "fairmf").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".nbi", ".nbc")
    }
    folders: dict[str, list[int]] = {}
    for name, size in files.items():
        folders.setdefault("/".join(name.split("/")[:2]) if name.count("/") > 1 else name.split("/")[0], []).append(
            size
        )
    size = wheel.stat().st_size
    print(f"\n{wheel.name}: {size:,} bytes, {len(files)} files, {sum(files.values()):,} bytes unpacked")
    for folder, sizes in sorted(folders.items(), key=lambda row: -sum(row[1])):
        print(f"  {sum(sizes):>9,}  {len(sizes):>4} files  {folder}")
    print("  largest: " + ", ".join(f"{name} {files[name]:,}" for name in sorted(files, key=files.__getitem__)[:-4:-1]))
    if package != source:
        raise SystemExit(f"the wheel and src/ differ: {sorted(package ^ source)[:10]}")
    if size > LARGEST_WHEEL:
        raise SystemExit(f"the wheel has more than {LARGEST_WHEEL:,} bytes")


def try_on(python: str, wheel: Path, archive: Path, options: argparse.Namespace) -> str | None:
    """Install and run everything with one Python; return what failed."""
    folder = ROOT / "build" / f"dist-{version(python)}{'-lowest' if options.lowest else ''}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    inside, pins = environment(python, folder, wheel, options.lowest)
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extractall(folder, filter="data")
        else:
            opened.extractall(folder)
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    shutil.rmtree(unpacked / "src")
    where = [inside, "-c", "import fairmf; print(fairmf.__file__)"]
    if "site-packages" not in run(where, cwd=unpacked, capture=True):
        return "fairmf was not imported from the installed wheel"
    empty = folder / "quick start"
    empty.mkdir()
    if run([inside, "-c", QUICK_START, unpacked, empty], cwd=unpacked, may_fail=True):
        return "the quick start"
    if options.quick:
        return None
    install(inside, [f"{wheel}[{EXTRAS[1]}]"], pins)
    # Old versions of our dependencies use what new versions of theirs announce to remove: no fault of ours.
    old = ["-W", "ignore::DeprecationWarning"] if options.lowest else []
    tests = [inside, "-m", "pytest", "-q", "-m", "not slow", *old, *options.tests]
    return "tests" if run(tests, cwd=unpacked, may_fail=True) else None


def environment(python: str, folder: Path, wheel: Path, lowest: bool) -> tuple[Path, list[str | Path]]:
    """Make an environment with the wheel and the tools of the tests; return its interpreter and pip's constraints."""
    run([python, "-m", "venv", folder / "environment"])
    inside = folder / "environment" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pins: list[str | Path] = []
    if lowest:
        oldest = folder / "lowest.txt"
        extras = [word for name in EXTRAS[1].split(",") for word in ("--extra", name)]
        resolve = ["--quiet", "--resolution", "lowest-direct", "--python-version", version(python), *extras]
        run([sys.executable, "-m", "uv", "pip", "compile", *resolve, "--output-file", oldest, ROOT / "pyproject.toml"])
        print(oldest.read_text(encoding="utf-8"))
        pins = ["--constraint", oldest]
    install(inside, [wheel, *re.findall(r'"(.*?)"', TEST_TOOLS[1])], pins)
    return inside, pins


def install(inside: Path, packages: list[str | Path], pins: list[str | Path]) -> None:
    """Install packages within the constraints."""
    run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages, *pins])


def found(wanted: str) -> str | None:
    """Return an interpreter of this version: on the path, or installed by pyenv or uv; None if there is none."""
    places = [shutil.which(f"python{wanted}")]
    for folder in (Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"):
        places += [str(path) for path in sorted(folder.glob(f"*{wanted}*/bin/python{wanted}"))]
    for place in places:
        if place and subprocess.run([place, "-c", "import venv"], capture_output=True).returncode == 0:
            return place
    return None


def newest() -> str | None:
    """Return the newest interpreter there is."""
    return next((found(wanted) for wanted in reversed(VERSIONS) if found(wanted)), None)


def version(python: str) -> str:
    """Return major and minor version of an interpreter."""
    return run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture=True).strip()


def run(command: list[str | Path], cwd: Path = ROOT, capture: bool = False, may_fail: bool = False) -> str:
    """Run a command. Return what it printed if captured, else a word that is empty unless it failed."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, text=True, env=clean, capture_output=capture)
    if done.returncode and not may_fail:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{done.stderr or ''}")
    return done.stdout if capture else "failed" * bool(done.returncode)


if __name__ == "__main__":
    sys.exit(main())

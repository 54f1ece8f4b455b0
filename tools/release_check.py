"""Build what would be released, and try it in clean environments: `make release-check`.

The wheel and the sdist are built, their metadata are checked, and the wheel is installed with every supported Python
that is found. There it is imported, and makes the gridworld figure at its smallest size. For every extra, pip finds
versions that fit together; nothing of it is installed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
SMOKE = ("reproduce", "gridworld", "--scale", "smoke", "--out", "results")
IN_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/valueshare/__init__.py")
NOT_IN_SDIST = ("site/", "runs/", "results/", ".venv/", ".git/")


def call(*words: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; a `RuntimeError` of one that fails has its last words."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise RuntimeError("\n  ".join([" ".join(map(str, words)), *last]))
    return done.stdout


def find_python(version: str) -> Path | None:
    """An interpreter of this version that works: on PATH, or one of pyenv's."""
    on_path = shutil.which(f"python{version}")
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python{version}"))
    for candidate in [*([Path(on_path)] if on_path else []), *pyenv]:
        if not subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode:
            return candidate
    return None


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, with the files that belong in them."""
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    strange = [name for name in names if not re.match(r"valueshare(-[^/]*\.dist-info)?/", name)]
    assert not strange, f"{wheel.name} has {strange[:3]}"
    with tarfile.open(sdist) as packed:
        members = [member.name.partition("/")[2] for member in packed.getmembers()]
    assert all(name in members for name in IN_SDIST), f"{sdist.name} lacks one of {IN_SDIST}"
    assert not any(name.startswith(NOT_IN_SDIST) for name in members), f"{sdist.name} has files of results"
    for path in (wheel, sdist):
        print(f"built {path.name}: {path.stat().st_size / 1e6:.2f} MB", flush=True)
    return wheel, sdist


def metadata(wheel: Path, field: str) -> list[str]:
    """The values of a field of the wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return re.findall(rf"^{field}: (.*)$", archive.read(name).decode(), re.MULTILINE)


def is_typed(wheel: Path) -> bool:
    """Whether type checkers read the package's types, if it says so: they look for a file py.typed."""
    with zipfile.ZipFile(wheel) as archive:
        return "Typing :: Typed" not in metadata(wheel, "Classifier") or "valueshare/py.typed" in archive.namelist()


def install(wheel: Path, python: Path, folder: Path) -> Path:
    """The interpreter of a new environment with the wheel, and nothing that it does not ask for."""
    call(python, "-m", "venv", folder / "venv")
    own = folder / "venv" / "bin" / "python"
    call(own, "-m", "pip", "install", "--quiet", wheel)
    return own


def try_installed(wheel: Path, own: Path, folder: Path) -> None:
    """Import the package, and call the command: its help, and a run."""
    version = call(own, "-c", "import valueshare; print(valueshare.__version__)", cwd=folder).strip()
    assert f"-{version}-" in wheel.name, f"{wheel.name} says that it is {version}"
    command = folder / "venv" / "bin" / "valueshare"
    assert "reproduce" in call(command, "--help", cwd=folder)
    call(command, *SMOKE, cwd=folder)
    assert (folder / "results" / "report" / "report.html").is_file()


def resolve(wheel: Path, extra: str, python: Path) -> str | None:
    """Why pip finds no versions for an extra; None where it does."""
    words: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--quiet",
        "--prefer-binary",
        f"{wheel}[{extra}]",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (errors or [done.stderr.strip()[-300:]])[0] if done.returncode else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="versions to try")
    parser.add_argument("--extras", nargs="*", help="extras to resolve; left out: all")
    args = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory(prefix="valueshare-release-") as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder)
        call(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        print("metadata: twine check passed", flush=True)
        if not is_typed(wheel):
            print("  the classifier Typing :: Typed needs a file src/valueshare/py.typed", flush=True)
            failures.append("py.typed")
        for version in args.pythons:
            python = find_python(version)
            if python is None:
                print(f"Python {version}: not found, not tried", flush=True)
                continue
            start, place = time.monotonic(), Path(tempfile.mkdtemp(dir=folder))
            own = install(wheel, python, place)
            try:
                try_installed(wheel, own, place)
            except RuntimeError as error:
                print(f"Python {version}: FAILED: {error}", flush=True)
                failures.append(f"Python {version}: the installed wheel")
            else:
                seconds = time.monotonic() - start
                print(f"Python {version}: installs, imports, --help, smoke run ({seconds:.0f} s)", flush=True)
            for extra in metadata(wheel, "Provides-Extra") if args.extras is None else args.extras:
                reason = resolve(wheel, extra, own)
                print(f"  [{extra}] {'resolves' if reason is None else reason}", flush=True)
                failures += [f"Python {version}: [{extra}]"] if reason else []
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()

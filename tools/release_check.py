"""Build what would be released, and try it in clean environments: `make release-check`.

The wheel and the sdist are built, and their metadata are checked. With every supported Python that is found, both are
installed into environments of their own, imported, and the wheel makes the gridworld figure at its smallest size. With
the first of these Pythons, every extra is installed into an environment of its own, in the versions of constraints.txt,
and a command that needs it is run; with the others, pip only finds versions of each extra that fit together.

    python tools/release_check.py --pythons 3.12 --extras torch onnx
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13")
TIMEOUT = 1800  # seconds of one command
IN_SDIST = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/valueshare/__init__.py")
NOT_IN_SDIST = ("site/", "runs/", "results/", ".venv/", ".git/")
SMOKE = "valueshare reproduce gridworld --scale smoke --out results"
SMALL = "--seeds 1 --steps 60 --eval-interval 30 --eval-episodes 1 --eval-episode-limit 10 --batch-size 4"
TRAIN = f"valueshare train --env CartPole-v1 {SMALL} --learning-starts 10 --hidden 8 --out run"
PONG = f"valueshare train --env Pong {SMALL} --learning-starts 10 --replay-capacity 200 --out run"
PROGRAMS = str(ROOT / "tools" / "release_programs.py")


class Use(NamedTuple):
    """Commands that need an extra, the files that they write, and the extras beside it that they need."""

    commands: tuple[str | tuple[str, ...], ...]
    files: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    in_clone: bool = False  # run there instead of in an empty folder


USES = {
    "torch": Use((("python", PROGRAMS, "layer"),)),
    "train": Use((TRAIN, "valueshare report run"), ("run/report/report.html",)),
    "atari": Use((PONG,), ("run/agents.parquet",)),
    "jax": Use((f"{TRAIN} --backend jax",), ("run/agents.parquet",)),
    "video": Use((TRAIN, "valueshare play run --agent 0 --video agent.mp4"), ("agent.mp4",), ("train",)),
    "ray": Use((("python", PROGRAMS, "train-on-ray"),), ("run/agents.parquet",)),
    "remote": Use((TRAIN.replace("--out ", "--out local://{folder}/"),), ("run/agents.parquet",), ("train",)),
    "tensorboard": Use((f"{TRAIN} --log tensorboard",), ("run/tensorboard",), ("train",)),
    "wandb": Use((f"{TRAIN} --log wandb",), ("run/agents.parquet",), ("train",)),
    "onnx": Use((TRAIN, ("python", PROGRAMS, "export")), ("agent.onnx",), ("train",)),
    "docs": Use(("python -m mkdocs build --strict --site-dir {folder}/site",), ("site/index.html",), (), True),
    "release": Use(("python -m build --version", "python -m twine --version")),
    "dev": Use(("python -m pytest -q -p no:cacheprovider tests/test_expansion.py tests/nn",), (), (), True),
}


def call(*words: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; a `RuntimeError` of one that fails has its last words."""
    quiet = {"WANDB_MODE": "offline", "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it could lead to the clone
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**own, **quiet},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise RuntimeError("\n  ".join([" ".join(map(str, words)), *last]))
    return done.stdout


def find_python(version: str) -> Path | None:
    """An interpreter of this version that makes environments: on PATH, or one of pyenv's."""
    on_path = shutil.which(f"python{version}")
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python{version}"))
    for candidate in [*([Path(on_path)] if on_path else []), *pyenv]:
        if not subprocess.run([candidate, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode:
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


@contextmanager
def environment(python: Path, *packages: str | Path) -> Iterator[Path]:
    """A new folder with an environment, venv/, that has these packages and what they need; deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="valueshare-release-") as temporary:
        folder = Path(temporary)
        call(python, "-m", "venv", folder / "venv")
        own = folder / "venv" / "bin" / "python"
        if packages:
            call(own, "-m", "pip", "install", "--quiet", "--no-compile", "--prefer-binary", *packages)
        yield folder


def run_command(folder: Path, command: str | tuple[str, ...], cwd: Path | None = None) -> str:
    """The output of a program of the environment in a folder."""
    program, *words = command.split() if isinstance(command, str) else command
    words = [word.replace("{folder}", str(folder)) for word in words]
    return call(folder / "venv" / "bin" / program, *words, cwd=cwd or folder)


def try_package(archive: Path, version: str, python: Path) -> None:
    """Install the wheel or the sdist; import it, and call the command: its help and, of the wheel, a run."""
    with environment(python, archive) as folder:
        found = run_command(folder, ("python", "-c", "import valueshare; print(valueshare.__version__)")).strip()
        assert found == version, f"{archive.name} says that it is {found}"
        assert "reproduce" in run_command(folder, "valueshare --help")
        if archive.suffix == ".whl":
            run_command(folder, SMOKE)
            assert (folder / "results" / "report" / "report.html").is_file(), "no report of the smoke run"


def try_extra(wheel: Path, extra: str, python: Path) -> None:
    """Install an extra in the tested versions, and run the commands that need it."""
    use = USES[extra]
    wanted = f"{wheel}[{','.join((extra, *use.beside))}]"
    with environment(python, "--constraint", CONSTRAINTS, wanted) as folder:
        for command in use.commands:
            run_command(folder, command, ROOT if use.in_clone else None)
        missing = [name for name in use.files if not (folder / name).exists()]
        assert not missing, f"no {missing[0]} was written"


def resolve_extra(wheel: Path, extra: str, python: Path) -> None:
    """Let pip find versions for an extra in an empty environment, without installing them."""
    with environment(python) as folder:
        pip = ("python", "-m", "pip", "install", "--dry-run", "--quiet", "--prefer-binary")
        run_command(folder, (*pip, f"{wheel}[{extra}]"))


def passes(what: str, check: Callable[[], None]) -> bool:
    """Whether a check passes, in a printed line."""
    start = time.monotonic()
    try:
        check()
    except (RuntimeError, AssertionError, subprocess.TimeoutExpired) as error:
        print(f"{what}: FAILED: {error}", flush=True)
        return False
    print(f"{what} ({time.monotonic() - start:.0f} s)", flush=True)
    return True


def check_all(wheel: Path, sdist: Path, pythons: Sequence[str], extras: Sequence[str]) -> list[str]:
    """The checks that failed."""
    (version,) = metadata(wheel, "Version")
    checks: dict[str, Callable[[], None]] = {}
    installing = None  # the Python that extras are installed with
    for name in pythons:
        python = find_python(name)
        if python is None:
            print(f"Python {name}: skipped: there is no python{name} on PATH or in ~/.pyenv/versions", flush=True)
            continue
        installing = installing or name
        head = f"Python {name}"
        checks[f"{head}: the wheel installs, imports, --help, smoke run"] = partial(try_package, wheel, version, python)
        checks[f"{head}: the sdist installs, imports, --help"] = partial(try_package, sdist, version, python)
        check, done = (try_extra, "installs, works") if name == installing else (resolve_extra, "resolves")
        for extra in extras:
            checks[f"{head}: [{extra}] {done}"] = partial(check, wheel, extra, python)
    if not checks:
        return ["no supported Python was found"]
    return [what for what, check in checks.items() if not passes(what, check)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="versions to try")
    parser.add_argument("--extras", nargs="*", choices=USES, help="extras to try; left out: all")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="valueshare-release-") as temporary:
        wheel, sdist = build(Path(temporary))
        call(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
        print("metadata: twine check passed", flush=True)
        provided = metadata(wheel, "Provides-Extra")
        failures = [f"[{extra}] has no command in USES" for extra in provided if extra not in USES]
        if not is_typed(wheel):
            failures.append("the classifier Typing :: Typed needs a file src/valueshare/py.typed")
        extras = [extra for extra in (provided if args.extras is None else args.extras) if extra in USES]
        failures += check_all(wheel, sdist, args.pythons, extras)
    if failures:
        sys.exit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()

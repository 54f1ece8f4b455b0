"""Test with the libraries that the dev extra leaves out, each in a virtual environment: `make test-integrations`.

An environment has the library and its dependencies; everything else, PyTorch too, is borrowed from the Python that runs
this program. Environments are made on the first run, in .venv-integrations. Prints one line per library.

    python tools/integrations.py          # all of them
    python tools/integrations.py pfrl     # one
"""

import re
import subprocess
import sys
import sysconfig
import time
import venv
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-integrations"
EXAMPLES = ("tests/integrations/test_examples.py", "tests/integrations/test_docs_integrations.py")


class Library(NamedTuple):
    packages: tuple[str, ...]
    tests: tuple[str, ...]  # of these files, those with `keyword` in their names
    keyword: str


# Why they are not in the dev extra is in docs/integrations.md.
LIBRARIES = {
    "pfrl": Library(("pfrl==0.4.0",), EXAMPLES, "pfrl"),
    "tianshou": Library(("tianshou==2.0.1",), EXAMPLES, "tianshou"),
    "onnx": Library(
        ("onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2"), ("tests/runs/test_policies.py",), "onnx"
    ),
    "wandb": Library(("wandb==0.31.0",), ("tests/runs/test_wandb.py",), "offline"),
}


def environment(name: str, packages: tuple[str, ...]) -> Path:
    """The Python of an environment with these packages; a list of other versions makes it anew."""
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "packages"
    # PyTorch as it is here: pip must not look for another build.
    packages = (*packages, f"torch=={version('torch').partition('+')[0]}")
    if stamp.is_file() and stamp.read_text() == " ".join(packages):
        return python
    venv.create(folder, with_pip=True, clear=True)
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(own) / "borrowed.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    done = subprocess.run([python, "-m", "pip", "install", *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    stamp.write_text(" ".join(packages))
    return python


def passes(name: str) -> bool:
    """Whether the library's tests pass, in a printed line; a skipped test does not."""
    library, start = LIBRARIES[name], time.monotonic()
    try:
        python = environment(name, library.packages)
        words = ("-m", "pytest", "-p", "no:cacheprovider", "-k", library.keyword, *library.tests)
        done = subprocess.run([python, *words], cwd=ROOT, capture_output=True, text=True, check=False)
        count = re.search(r"(\d+) passed", done.stdout)
        if done.returncode or not count or "skipped" in done.stdout:
            raise RuntimeError(done.stdout + done.stderr)
    except RuntimeError as error:
        print(f"{', '.join(library.packages)}: FAILED\n{error}", flush=True)
        return False
    print(f"{', '.join(library.packages)}: {count[0]} ({time.monotonic() - start:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    failed = [name for name in sys.argv[1:] or LIBRARIES if not passes(name)]
    sys.exit(1 if failed else 0)

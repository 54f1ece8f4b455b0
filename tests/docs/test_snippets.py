"""Every command and Python block of the documentation runs at a small scale, or is at least parsed and validated.

A page is run from top to bottom in one folder and one namespace, as a reader would. `MODES` says how a command runs.
"""

import itertools
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import pytest
from page_snippets import PAGES, ROOT, Snippet, page_name, snippets

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.learning.algorithms import ALGORITHMS

SMALL = """--steps 40 --eval-interval 20 --seeds 2 --learning-starts 10 --eval-episodes 1 --eval-envs 1
    --eval-episode-limit 20 --hidden 8 --batch-size 4 --replay-capacity 100 --no-compile --workers 1"""


class Mode(NamedTuple):
    """How a command is tested. Options that come later replace earlier ones."""

    how: Literal["run", "slow", "plan", "parse"]  # slow: run by the slow test, and parsed by the quick one
    options: str = ""


MODES = {  # the first that matches
    r"s3://|/shared/|\$|--launcher ray": Mode("parse"),  # need a store, a cluster or a script
    r"--device cuda|^bench |^watch |sb3-\*": Mode("parse"),  # a GPU, minutes, a browser, other commands before
    r"RUN\.\.\.": Mode("parse"),  # a synopsis
    r"^train .*MinAtar|^reproduce minatar": Mode("parse"),  # minutes; tests/experiments runs a smaller one
    r"--callback my_module": Mode("parse"),  # a reader's own; tests/runs/test_callbacks.py runs one
    r"^train .*--plan": Mode("plan"),
    r"^train .*(Pong|LunarLander|Acrobot|MountainCar)": Mode("plan"),
    r"^train .*--seeds 16": Mode("plan"),
    r"^train ": Mode("run", SMALL),
    r"^reproduce atari": Mode("plan", "--rate 10000"),
    r"^reproduce lunarlander": Mode("plan"),
    r"^reproduce gridworld": Mode("slow", "--scale smoke"),
    r"^tabular ": Mode("slow", "--seeds 2 --steps 500"),
    r"^report (docs/reproduction|results/halves)": Mode("slow", "--resamples 100"),
    r"^report ": Mode("run", "--resamples 100 --figures learning-curves"),
    r"^play ": Mode("run", "--episode-limit 4"),
    r"^evaluate ": Mode("run", "--episodes 2 --episode-limit 20"),
    r"^extend runs/LunarLander": Mode("parse"),  # of a run that takes too long
    r"^extend ": Mode("run", "--steps 60 --workers 1"),
    r"^best ": Mode("run", "--resamples 100"),
    r"^(resume|paper-table|--help)": Mode("run"),
}
SCALE = {  # of Python blocks
    r"steps=3_000, eval_interval=1_000": "steps=40, eval_interval=20",
    r"steps=500, eval_interval=500": "steps=40, eval_interval=40",
    r"steps=2_000,\n    eval_interval=1_000": "steps=40, eval_interval=20, learning_starts=10, batch_size=4",
    r'"steps": 200, "eval_interval": 100, "learning_starts"': '"steps": 40, "eval_interval": 20, "learning_starts"',
    r"steps=100_000": "steps=80",
    r"workers=2": "workers=1",
    r"seeds=(64|128)": "seeds=2",
}
OWN_TESTS = {  # Python blocks that other tests run, by page and section ("": all)
    ("docs/integrations.md", ""): "tests/integrations/test_docs_integrations.py",
    ("docs/statistics.md", ""): "tests/analysis/test_docs_statistics.py",
    ("docs/training.md", "Custom networks"): "tests/runs/test_own_network.py",
}
# Run folders that a page speaks of without a command that makes them.
PREPARED = {
    "docs/run-folders.md": "runs/CartPole-v1-ib-dqn",
    "docs/play.md": "runs/Pong-ib-dqn",
    "docs/training.md": "runs/sweep",  # the sweep itself takes too long
}
WITH_SNIPPETS = [path for path in PAGES if snippets(path)]
Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Pages register environments and algorithms: only for themselves."""
    registries: list[dict[str, Any]] = [gymnasium.registry, ALGORITHMS, ALGORITHM_INFO]
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def mode(snippet: Snippet) -> tuple[str, Mode]:
    for pattern, found in MODES.items():
        if re.search(pattern, snippet.text):
            return pattern, found
    raise AssertionError(f"{snippet}: give valueshare {snippet.text} a mode in MODES")


def words(snippet: Snippet) -> list[str]:
    text = re.sub(r"[\[\]]", "", snippet.text.replace("RUN...", "RUN"))  # of a synopsis
    return shlex.split(text, comments=True)


def parse(given: list[str]) -> None:
    """Parse a command line and validate its options, without running it."""
    from valueshare.cli import make_app

    make_app().parse_args(given, exit_on_error=False, print_error=False)


def has_own_test(snippet: Snippet) -> bool:
    return any(snippet.page == page and section in ("", snippet.section) for page, section in OWN_TESTS)


def run_command(snippet: Snippet, cli: Cli, *, slow: bool) -> None:
    _, (how, options) = mode(snippet)
    given = words(snippet)
    parse(given)  # as it is written
    if how == "parse" or (how == "slow" and not slow):
        return
    more = shlex.split(options) + (["--plan"] if how == "plan" and "--plan" not in given else [])
    ended = cli(*given, *more)
    does_not_fit = how == "plan" and ended.code == 2 and re.search(r"memory|fit", ended.err)
    assert ended.code == 0 or does_not_fit, f"{snippet}: {ended.err}"


def run_python(snippet: Snippet, names: dict[str, Any]) -> None:
    text = snippet.text
    if snippet.file:
        Path(snippet.file).write_text(text)
        return
    for pattern, small in SCALE.items():
        text = re.sub(pattern, small, text)
    code = "\n" * (snippet.line - 1) + text  # so that a traceback has the line of the page
    exec(compile(code, str(ROOT / snippet.page), "exec"), names)


def run_page(path: Path, cli: Cli, *, slow: bool) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for snippet in snippets(path):
        if snippet.kind == "command":
            run_command(snippet, cli, slow=slow)
        elif not has_own_test(snippet):
            run_python(snippet, names)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the repository's docs in it; modules that a page writes are imported from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("docs").symlink_to(ROOT / "docs")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small finished run."""
    import valueshare

    folder = tmp_path_factory.mktemp("runs") / "run"
    small: dict[str, Any] = {
        "steps": 40,
        "eval_interval": 20,
        "eval_episodes": 1,
        "hidden": (8,),
        "replay_capacity": 300,
    }
    valueshare.train("CartPole-v1", k=[0, 2], seeds=2, out=folder, progress=False, **small)
    return folder


@pytest.mark.parametrize("path", WITH_SNIPPETS, ids=page_name)
def test_a_page_runs(path: Path, cli: Cli, request: pytest.FixtureRequest) -> None:
    if folder := PREPARED.get(page_name(path)):
        shutil.copytree(request.getfixturevalue("finished_run"), folder)
    run_page(path, cli, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in WITH_SNIPPETS if any(s.kind == "command" and mode(s)[1].how == "slow" for s in snippets(path))],
    ids=page_name,
)
def test_a_page_runs_with_its_longer_commands(path: Path, cli: Cli) -> None:
    run_page(path, cli, slow=True)


# The tables above, and what they would miss.


def all_snippets(kind: str) -> list[Snippet]:
    return [snippet for path in WITH_SNIPPETS for snippet in snippets(path) if snippet.kind == kind]


def test_no_entry_of_the_tables_is_stale() -> None:
    commands, blocks = all_snippets("command"), all_snippets("python")
    assert {mode(snippet)[0] for snippet in commands} == set(MODES)
    for pattern in SCALE:
        assert any(re.search(pattern, snippet.text) for snippet in blocks), pattern
    for (page, section), test in OWN_TESTS.items():
        assert any(snippet.page == page and section in ("", snippet.section) for snippet in blocks)
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
    for page, folder in PREPARED.items():
        assert any(snippet.page == page and folder in snippet.text for snippet in commands)


def test_no_command_is_overlooked() -> None:
    """Counted without the parser of pages: lines of code that begin with the command, or call it in a script."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        lines = re.findall(
            r"^(?: {4,}|)(?:\$ )?(?:PYTHONPATH=\. )?valueshare (?=[a-z-]+(?: |$))(?!is )", text, re.MULTILINE
        )
        scripts = re.findall(r"=\(valueshare ", text)
        assert len(lines) + len(scripts) == sum(snippet.kind == "command" for snippet in snippets(path)), path
        assert text.count("```python\n") == sum(snippet.kind == "python" for snippet in snippets(path)), path


@pytest.mark.parametrize("text", ["train --env CartPole-v1 --sede 3", "trian --env A", "resume", "report --port 1 RUN"])
def test_a_wrong_command_is_found(text: str) -> None:
    from cyclopts import CycloptsError

    with pytest.raises(CycloptsError):
        parse(words(Snippet("page", 1, "", "command", text)))


def test_a_page_that_fails_is_found(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("page_snippets.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# A\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_page(page, cli, slow=False)
    page.write_text("# A\n\nText:\n\n    valueshare resume nowhere  # a comment\n")
    with pytest.raises(AssertionError, match=r"page.md:5: .*nowhere"):
        run_page(page, cli, slow=False)


# Pages that are read from the first to the last; the others show single commands.
FOLLOWED = ("README.md", "docs/quickstart.md", "docs/training.md", "docs/tabular.md", "docs/play.md", "docs/atari.md")


def written_folder(snippet: Snippet) -> str | None:
    """The folder that a command or a Python block writes a run or results to; None: it writes none."""
    if snippet.kind == "python":
        call = re.search(r"valueshare\.train\((.*?)\)$", snippet.text, re.S | re.M)
        out = re.search(r'out="([^"]+)"', call[1]) if call else None
        return None if call is None else out[1] if out else f"the default folder of {call[1].split(',')[0]}"
    given = words(snippet)
    if given[0] not in ("train", "reproduce", "tabular") or "--plan" in given or "$" in snippet.text:
        return None
    if "--out" in given:
        return given[given.index("--out") + 1]
    if given[0] != "train":
        return f"the default folder of {' '.join(given)}"
    values = itertools.takewhile(lambda word: not word.startswith("--"), given[given.index("--env") + 1 :])
    return f'the default folder of "{" ".join(values)}"'


def test_no_two_commands_write_to_one_folder() -> None:
    """A reader runs the commands of the pages one after the other, in one folder."""
    pages = [path for path in PAGES if page_name(path) in FOLLOWED or "tutorials" in path.parts]
    written: dict[str, Snippet] = {}
    for snippet in itertools.chain.from_iterable(map(snippets, pages)):
        folder = written_folder(snippet)
        if folder is not None:
            assert folder not in written, f"{snippet} and {written[folder]} write to {folder}: give one another --out"
            written[folder] = snippet
    assert len(written) > 15
    assert "runs/quickstart" in written

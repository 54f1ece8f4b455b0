"""Every command and Python block of the documentation runs, at a small scale where it would take long.

A page is run from top to bottom in one folder and one namespace, as a reader would. `MODES` says how a command runs.
"""

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from page_commands import (
    FOLDERS,
    MODES,
    PLACEHOLDERS,
    Cli,
    check,
    command_text,
    matching,
    mode,
    parse,
    run_command,
    words,
)
from page_snippets import COMMAND, INLINE, PAGES, ROOT, SOURCES, Snippet, blocks, page_name, page_text, snippets

from valueshare.algorithm_info import ALGORITHM_INFO
from valueshare.learning.algorithms import ALGORITHMS
from valueshare.runs.storage import leases

SCALE = {  # of Python blocks
    r"steps=3_000, eval_interval=1_000": "steps=40, eval_interval=20",
    r"steps=500, eval_interval=500": "steps=40, eval_interval=40",
    r"steps=2_000,\n    eval_interval=1_000": "steps=40, eval_interval=20, learning_starts=10, batch_size=4",
    r'"steps": 200, "eval_interval": 100, "learning_starts"': '"steps": 40, "eval_interval": 20, "learning_starts"',
    r"steps=300, eval_interval=100": "steps=40, eval_interval=20",
    r"steps=100_000": "steps=80",
    r"workers=2": "workers=1",
    r"seeds=(8|64|128)": "seeds=2",
}
OWN_TESTS = {  # Python blocks that other tests run, by page and section ("": all)
    ("docs/integrations.md", ""): "tests/integrations/test_docs_integrations.py",
    ("docs/statistics.md", ""): "tests/analysis/test_docs_statistics.py",
    ("docs/training.md", "Custom networks"): "tests/runs/test_own_network.py",
}
# Run folders that a page speaks of without a command that makes them.
PREPARED = {
    "README.md": "runs/LunarLander-v3-ib-dqn",
    "docs/run-folders.md": "runs/CartPole-v1-ib-dqn",
    "docs/play.md": "runs/Pong-ib-dqn",
    "docs/training.md": "runs/sweep",  # the sweep itself takes too long
    "docs/clusters.md": "shared/runs/lunarlander",
}
# What `my_module` of a reader has.
MY_MODULE = """
import gymnasium


def log(records, run):
    print(records["step"].max())


gymnasium.register("MyTable-v0", "gymnasium.envs.toy_text.frozen_lake:FrozenLakeEnv")
"""
# Blocks of code that are no commands: what a command printed, or a formula. The first words of each.
OUTPUT = {
    "docs/clusters.md": ("expected: ", "126 populations "),
    "docs/play.md": ("episode 1: ",),
    "docs/quickstart.md": ("CartPole-v1 ib-dqn k=0: ",),
    "docs/run-folders.md": ("valueshare: stopped at step ",),
    "docs/settings.md": ("resources: ",),
    "docs/statistics.md": ("dqn k=0 lacks ",),
    "docs/training.md": ("CartPole-v1 ib-dqn k=0: ",),
    "docs/transform.md": ("q = M_k z ",),
    "docs/tutorials/own-environment.md": ("corridor:my/Corridor-v0 ib-dqn ",),
    "docs/tutorials/read-a-report.md": ("The largest gain: ",),
    "docs/tutorials/sweep-k.md": ("-1 per step, ", "Too few seeds "),
    "docs/versioning.md": ("valueshare: runs/old ",),
}
WITH_SNIPPETS = [path for path in SOURCES if snippets(path)]


def is_slow(snippet: Snippet) -> bool:
    found = matching(snippet)
    return found is not None and found[1].slow is not None


def commands(path: Path) -> list[Snippet]:
    return [snippet for snippet in snippets(path) if snippet.kind in ("command", "inline")]


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Pages register environments and algorithms: only for themselves."""
    registries: list[dict[str, Any]] = [gymnasium.registry, ALGORITHMS, ALGORITHM_INFO]
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


def has_own_test(snippet: Snippet) -> bool:
    return any(snippet.page == page and section in ("", snippet.section) for page, section in OWN_TESTS)


def run_python(snippet: Snippet, names: dict[str, Any]) -> None:
    text = snippet.text
    if snippet.file:
        Path(snippet.file).write_text(text)
        return
    for pattern, small in SCALE.items():
        text = re.sub(pattern, small, text)
    code = "\n" * (snippet.line - 1) + text  # so that a traceback has the line of the page
    exec(compile(code, str(ROOT / snippet.page), "exec"), names)


def run_page(path: Path, cli: Cli, run: Path, *, slow: bool) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    done: set[str] = set()
    for snippet in snippets(path):
        if snippet.kind == "python" and not has_own_test(snippet):
            run_python(snippet, names)
        elif snippet.kind == "command" or (snippet.kind == "inline" and snippet.text not in done):
            run_command(snippet, cli, run, slow=slow)
            done.add(snippet.text)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the repository's docs and programs in it; modules that a page writes are imported from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(leases, "SETTLE_SECONDS", 0.05)
    for name in ("benchmarks", "docs", "examples", "tools"):
        Path(name).symlink_to(ROOT / name)
    Path("my_module.py").write_text(MY_MODULE)
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


@pytest.fixture
def prepared(finished_run: Path, request: pytest.FixtureRequest) -> Path:
    """The finished run, copied to where the page speaks of one."""
    if folder := PREPARED.get(page_name(request.node.callspec.params["path"])):
        shutil.copytree(finished_run, folder)
    return finished_run


@pytest.mark.parametrize("path", WITH_SNIPPETS, ids=page_name)
def test_a_page_runs(path: Path, cli: Cli, prepared: Path) -> None:
    run_page(path, cli, prepared, slow=False)


@pytest.mark.slow
@pytest.mark.timeout(900)  # of all commands of a page; the longest need about a minute of a quiet core each
@pytest.mark.parametrize(
    "path",
    [path for path in WITH_SNIPPETS if any(map(is_slow, commands(path)))],
    ids=page_name,
)
def test_a_page_runs_with_its_longer_commands(path: Path, cli: Cli, prepared: Path) -> None:
    run_page(path, cli, prepared, slow=True)


@pytest.mark.parametrize("path", [path for path in SOURCES if "bash" in {b.language for b in blocks(path)}])
def test_scripts_have_no_syntax_errors(path: Path) -> None:
    """tests/docs/test_cluster_commands.py runs them."""
    for block in (block for block in blocks(path) if block.language == "bash"):
        subprocess.run(["bash", "-n"], input="\n".join(block.lines), text=True, check=True)


# The tables above, and what they would miss.


def test_no_entry_of_the_tables_is_stale() -> None:
    everything = [snippet for path in WITH_SNIPPETS for snippet in snippets(path)]
    run = [snippet for snippet in everything if snippet.kind in ("command", "inline")]
    python = [snippet for snippet in everything if snippet.kind == "python"]
    assert {mode(snippet)[0] for snippet in run} == set(MODES)
    for pattern in PLACEHOLDERS:
        assert any(re.search(pattern, snippet.text) for snippet in run), pattern
    for name in FOLDERS:
        assert any(name in words(snippet) for snippet in run)
    for pattern in SCALE:
        assert any(re.search(pattern, snippet.text) for snippet in python), pattern
    for (page, section), test in OWN_TESTS.items():
        assert any(snippet.page == page and section in ("", snippet.section) for snippet in python)
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
    for page, folder in PREPARED.items():
        assert any(snippet.page == page and folder in command_text(snippet) for snippet in run)


def test_every_mode_runs_a_command_or_says_why_not() -> None:
    for pattern, how in MODES.items():
        runs = how.quick is not None or how.slow is not None or bool(how.test)
        assert runs != bool(how.reason), pattern
        assert not how.test or (ROOT / how.test).is_file()
    for snippet in (snippet for path in WITH_SNIPPETS for snippet in commands(path)):
        if test := mode(snippet)[1].test:  # it names the program, or the page of the command
            name = re.search(r"\w+\.(?=py)", snippet.text) or re.search(r".*", snippet.page)
            assert name
            assert name[0] in (ROOT / test).read_text(encoding="utf-8"), snippet


@pytest.mark.parametrize("path", SOURCES, ids=page_name)
def test_every_block_is_python_or_commands_or_a_known_output(path: Path) -> None:
    """Otherwise the command of a program that the tests do not know would be taken for output."""
    found = [block for block in blocks(path) if block.language != "bash"]
    assert {block.language for block in found} <= {""}
    known = OUTPUT.get(page_name(path), ())
    others = [block.lines[0].lstrip() for block in found if not block.is_all_commands()]
    assert len(others) == len(known)
    assert all(line.startswith(known) for line in others), others


def test_no_command_is_overlooked() -> None:
    """Counted without the parser of pages: wherever the word is followed by another word, in code or in a sentence."""
    for path in SOURCES:
        text = page_text(path)
        word = r"valueshare (?=-?-?[a-z-]+(?:[ `]|$))(?!is )"
        lines = re.findall(rf"^(?: {{4}}|)(?:\$ )?(?:PYTHONPATH=\. )?{word}", text, re.MULTILINE)
        scripts = re.findall(rf"=\({word}", text)
        inline = re.findall(rf"`(?:PYTHONPATH=\. )?{word}", text)
        found = [snippet for snippet in commands(path) if snippet.text.startswith("valueshare ")]
        assert len(lines) + len(scripts) + len(inline) == len(found), path
        assert text.count("```python\n") == sum(snippet.kind == "python" for snippet in snippets(path)), path


@pytest.mark.parametrize("text", ["train --env CartPole-v1 --sede 3", "trian --env A", "resume", "report --port 1 RUN"])
def test_a_wrong_command_is_found(text: str) -> None:
    from cyclopts import CycloptsError

    with pytest.raises(CycloptsError):
        parse(text.split())


def test_a_wrong_command_of_another_program_is_found() -> None:
    with pytest.raises(SystemExit):
        check(["python", "benchmarks/fuzz.py", "--casse", "3"])
    with pytest.raises(FileNotFoundError):
        check(["python", "benchmarks/fuz.py", "--cases", "3"])
    with pytest.raises(AssertionError, match="nothing_like_it"):
        check(["pytest", "tests/test_expansion.py", "-k", "nothing_like_it"])
    with pytest.raises(AssertionError):
        check(["pip", "install", "-e", ".[trian]"])


def test_a_page_that_fails_is_found(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("page_snippets.ROOT", tmp_path)
    page = tmp_path / "page.md"

    def run(text: str) -> None:
        page.write_text(f"# A\n\n{text}\n")
        run_page(page, cli, tmp_path, slow=False)

    with pytest.raises(AssertionError):
        run("```python\nx = 1\n```\n\n```python\nassert x == 2\n```")
    with pytest.raises(AssertionError, match=r"page.md:5: .*nowhere"):
        run("Text:\n\n    valueshare resume nowhere  # a comment")
    with pytest.raises(AssertionError, match=r"page.md:3: .*nowhere"):
        run("Text with `valueshare resume nowhere` in it.")
    with pytest.raises(AssertionError, match=r"page.md:3: give python -c 3 a mode"):
        run("    python -c 3")


def test_lines_that_are_no_command_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("page_snippets.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("    make a \\\n      b\n    docker run c\n\nText\n\n    make d \\\n      e\n    make f\n")
    assert [block.is_all_commands() for block in blocks(page)] == [False, True]
    assert [snippet.text for snippet in snippets(page)] == ["make a b", "make d e", "make f"]
    page.write_text("    $ make a\n    b\n\n    c\n")
    assert [block.is_all_commands() for block in blocks(page)] == [True]
    assert COMMAND.fullmatch("valueshare: wrong") is None
    assert INLINE.search("a `python` b `c`") is None


# Pages that are read from the first to the last; the others show single commands.
FOLLOWED = ("README.md", "docs/quickstart.md", "docs/training.md", "docs/tabular.md", "docs/play.md", "docs/atari.md")


def written_folder(snippet: Snippet) -> str | None:
    """The folder that a command or a Python block writes a run or results to; None: it writes none."""
    if snippet.kind == "python":
        call = re.search(r"valueshare\.train\((.*?)\)$", snippet.text, re.S | re.M)
        out = re.search(r'out="([^"]+)"', call[1]) if call else None
        return None if call is None else out[1] if out else f"the default folder of {call[1].split(',')[0]}"
    program, *given = words(snippet) if snippet.kind == "command" else [""]
    if program != "valueshare" or given[0] not in ("train", "reproduce", "tabular") or "--plan" in given:
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

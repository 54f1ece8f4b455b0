"""The arrows of docs/architecture.md point down only, in every import there is.

Imports within functions and under TYPE_CHECKING count as any other: they are late or for type
checkers, but what they point at is still what the module is written against.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "valueshare"
# The front door names what is inside, by name and late; __main__ only opens it.
FRONT = ("__init__.py", "__main__.py")


class Import(NamedTuple):
    """One import: where it stands, and the module that it names."""

    path: Path
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{self.line} imports {self.module}"


def rows() -> list[list[str]]:
    """The rooms of the table, a row each, from the top: `cli/` is cli, `errors.py` errors."""
    table = (ROOT / "docs" / "architecture.md").read_text().split("## The packages")[1]
    cells = re.findall(r"^\| (`.*?) \|", table.split("\n## ")[0], re.MULTILINE)
    return [[name.strip("`").removesuffix(".py").rstrip("/") for name in cell.split(", ")]
            for cell in cells]  # fmt: skip


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path, text: str | None = None) -> Iterator[Import]:
    """Every import statement of a file, wherever it stands; `from a import b` may name a.b."""
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            yield from (Import(path, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write the whole name"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield Import(path, node.lineno, whole if is_module(whole) else str(node.module))


def is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def own(found: Iterator[Import]) -> Iterator[Import]:
    return (each for each in found if each.module.split(".")[0] == "valueshare")


def room(module: str) -> str:
    """valueshare.runs.plan -> runs; the package itself is the front door, ''."""
    return module.split(".")[1] if "." in module else ""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def upward(found: Iterator[Import]) -> list[str]:
    """The imports that point up, or sideways to another room of the same row."""
    height = {name: -number for number, row in enumerate(rows()) for name in row}
    return [
        str(each)
        for each in own(found)
        if room(each.module) not in ("", room_of(each.path)) and height[room(each.module)] >= height[room_of(each.path)]
    ]


def test_every_room_has_its_place_in_the_table() -> None:
    named = [name for row in rows() for name in row]
    assert len(set(named)) == len(named)
    there = {
        path.name.removesuffix(".py")
        for path in PACKAGE.iterdir()
        if path.name not in FRONT and (path.suffix == ".py" or any(path.glob("*.py")))
    }
    assert there == set(named)


def missing_paths(text: str) -> list[str]:
    """The paths in a text that lead nowhere: below src/valueshare/, or those of docs/ and tests/ below the root."""
    named = re.findall(r"`([\w/]+(?:/|\.py)|(?:docs|tests)/[\w/.-]+)`", text)
    return [
        path
        for path in named
        if not ((ROOT if path.startswith(("docs/", "tests/", "src/")) else PACKAGE) / path).exists()
    ]


def test_every_path_of_the_page_leads_somewhere() -> None:
    assert missing_paths((ROOT / "docs" / "architecture.md").read_text()) == []


def test_a_path_that_leads_nowhere_is_found() -> None:
    text = "`population/loop.py` `loop.py` `runs/workers/` `workers/` `docs/none.md` `tests/envs/` `src/valueshare/`"
    assert missing_paths(text) == ["loop.py", "workers/", "docs/none.md"]


def test_arrows_point_down() -> None:
    for path in sources():
        if path.name not in FRONT or path.parent != PACKAGE:
            assert upward(imports(path)) == []


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("runs/plan.py", "from valueshare.experiments import studies"),
        ("runs/plan.py", "import valueshare.cli"),
        ("nn/heads.py", "def late():\n    from valueshare.learning.losses import huber"),
        ("nn/heads.py", "if TYPE_CHECKING:\n    from valueshare.population.state import State"),
        ("cores.py", "from valueshare.errors import InvalidInput"),  # the same row, another room
    ],
)
def test_an_arrow_that_points_up_is_found(where: str, text: str) -> None:
    assert len(upward(imports(PACKAGE / where, text))) == 1


def detour(found: Iterable[Import]) -> list[str]:
    """The modules of a circle, in the order of its imports; none where there is no circle."""
    graph: dict[str, set[str]] = {}
    for each in found:
        graph.setdefault(name_of(each.path), set()).add(each.module)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        return list(cycle.args[1])[::-1]  # there, each is imported by the next
    return []


def name_of(path: Path) -> str:
    """.../runs/plan.py -> valueshare.runs.plan; a package is called as it is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def inner() -> list[Import]:
    """Every import of one of our modules by another, the front door's and of it left out."""
    paths = [path for path in sources() if path.parent != PACKAGE or path.name not in FRONT]
    found = (each for path in paths for each in own(imports(path)))
    return [each for each in found if each.module != "valueshare"]


def test_no_module_needs_itself_by_a_detour() -> None:
    """Within a room too: the modules can be read in an order, each after those it is made of."""
    assert detour(inner()) == []


@pytest.mark.parametrize(
    "text",
    [
        "from valueshare.runs.run_plan import run_plan",
        "from valueshare.runs import run_plan",
        "def late():\n    from valueshare.runs.run_plan import run_plan",
        "if TYPE_CHECKING:\n    from valueshare.runs.run_plan import run_plan",
    ],
)
def test_a_detour_is_found(text: str) -> None:
    """run_plan.py is written against the contract: the contract must not be against run_plan.py."""
    more = imports(PACKAGE / "runs" / "launchers.py", text)
    circle = ["valueshare.runs.launchers", "valueshare.runs.run_plan"]
    assert sorted(set(detour([*inner(), *more]))) == circle


def test_launching_and_launchers_meet_at_their_contract_alone() -> None:
    """runs/launchers.py: no module beside workers/ imports a launcher, and no launcher launches."""
    for each in inner():
        if room_of(each.path) == "runs":
            is_worker = each.path.parent.name == "workers"
            not_for_it = "valueshare.runs.run_plan" if is_worker else "valueshare.runs.workers"
            assert not f"{each.module}.".startswith(f"{not_for_it}."), str(each)


def test_figures_depend_on_no_other_module_of_reports() -> None:
    """report/figures: data frames in, figures out; the page and the writer of files are above."""
    for each in inner():
        if each.path.parent == PACKAGE / "report" / "figures":
            of_report = f"{each.module}.".startswith("valueshare.report.")
            assert not of_report or each.module.startswith("valueshare.report.figures"), str(each)


def test_no_room_imports_the_front_door() -> None:
    """`valueshare/__init__.py` names what is inside; the version is in `_version.py`."""
    for path in sources():
        if path.parent == PACKAGE and path.name in FRONT:
            continue
        assert [str(each) for each in own(imports(path)) if each.module == "valueshare"] == []


def test_nothing_that_runs_code_when_it_is_read() -> None:
    forbidden = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal"}
    for path in sources():
        found = {each.module.split(".")[0] for each in imports(path)}
        assert not found & forbidden, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path


def test_no_import_is_hidden_in_a_string() -> None:
    """`import_module` passes by the tests above: it is for other packages, or the own room."""
    for path in sources():
        if path.parent == PACKAGE and path.name in FRONT:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and called(node) == "import_module":
                begins = beginning(node.args[0])
                assert begins, f"{path}:{node.lineno}: which module?"
                mine = f"valueshare.{room_of(path)}."
                assert begins.startswith(mine) or not begins.startswith("valueshare"), path


def called(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def beginning(node: ast.expr) -> str:
    """The known part of a string: all of a constant, the first words of an f-string."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    return str(node.value) if isinstance(node, ast.Constant) else ""

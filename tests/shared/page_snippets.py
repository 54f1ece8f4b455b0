"""The commands, Python blocks and scripts of a Markdown page or of a program's docstring, in their order."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = [path for folder in ("benchmarks", "examples", "tools") for path in sorted((ROOT / folder).glob("*.py"))]
SOURCES = [*PAGES, ROOT / "CONTRIBUTING.md", *PROGRAMS]  # of snippets
# What a command begins with. A line of code that begins with something else has to be named as output: see `blocks`.
WORDS = r"valueshare|(?:\.venv/bin/)?python|pip|pytest|make|ray|source|export|moto_server|pre-commit|echo"
COMMAND = re.compile(rf"(?:\$ )?(?:PYTHONPATH=\. )?(?P<text>(?:{WORDS}) .*)")
INLINE = re.compile(rf"`(?:PYTHONPATH=\. )?(?P<text>(?:{WORDS}|benchmarks/\w+\.py) [^`]+)`")
IN_SCRIPT = re.compile(r"\((?P<text>valueshare [^)]*)\)")  # begin=(valueshare resume "$run")
FILE = re.compile(r"This is `(?P<name>\w+\.py)`")


@dataclass(frozen=True)
class Snippet:
    """A command, a Python block or a script, and where it is."""

    page: str
    line: int
    section: str
    kind: Literal["command", "inline", "python", "script"]  # inline: a command in a sentence or a table
    text: str
    lead: str = ""  # the paragraph before it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the module that the block is the text of; None for code that runs."""
        found = FILE.search(self.lead)
        return found["name"] if found else None


@dataclass(frozen=True)
class Block:
    """Lines of code that are no Python: commands, or what a command prints."""

    line: int
    section: str
    lead: str
    language: str  # of a fence; empty for indented lines
    lines: list[str]

    def commands(self) -> Iterator[tuple[int, str]]:
        """Line number and text of each command; one that is continued after a backslash is one line."""
        begun = ""
        for number, line in enumerate(self.lines, self.line):
            text = f"{begun} {line.strip()}" if begun else line
            begun = text.removesuffix("\\").strip() if text.endswith("\\") else ""
            call = COMMAND.fullmatch(text) if self.language != "bash" else IN_SCRIPT.search(text)
            if call and not begun:
                yield number, call["text"]

    def is_all_commands(self) -> bool:
        """Whether no line is something else; after one with a prompt come lines that it prints."""
        whole = "\n".join(self.lines).replace("\\\n", "")
        return self.lines[0].startswith("$ ") or len(whole.splitlines()) == len(list(self.commands()))


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def page_text(path: Path) -> str:
    """A page, or the docstring of a program, which is read like one."""
    text = path.read_text(encoding="utf-8")
    return text if path.suffix == ".md" else ast.get_docstring(ast.parse(text)) or ""


def parts(path: Path) -> Iterator[Snippet | Block]:
    """A page from its first line to its last: Python blocks, other blocks, and commands in sentences."""
    page, section, lead, fence = page_name(path), "", "", None
    lines: list[str] = []
    begun = 0  # the line of the block that is open

    def indented() -> Iterator[Block]:
        while lines and not lines[-1]:
            lines.pop()
        if lines:
            yield Block(begun, section, lead, "", [*lines])
            lines.clear()

    for number, line in enumerate(page_text(path).splitlines(), 1):
        if line.startswith("```"):
            if fence is None:
                yield from indented()
                fence, begun = line.strip("`").strip(), number + 1
                continue
            text = "".join(f"{one}\n" for one in lines)
            if fence in ("python", "bash"):
                yield Snippet(page, begun, section, "python" if fence == "python" else "script", text, lead)
            if fence != "python":
                yield Block(begun, section, lead, fence, [*lines])
            fence = None
            lines.clear()
        elif fence is not None:
            lines.append(line)
        elif line.startswith("    ") or (lines and not line):
            begun = begun if lines else number
            lines.append(line[4:])
        else:
            yield from indented()
            if line.startswith("#"):
                section = line.lstrip("# ")
            elif line:
                lead = line
            for found in INLINE.finditer(line):
                yield Snippet(page, number, section, "inline", found["text"], lead)
    yield from indented()


def blocks(path: Path) -> list[Block]:
    """Blocks of a page that are no Python."""
    return [part for part in parts(path) if isinstance(part, Block)]


def snippets(path: Path) -> list[Snippet]:
    """What a reader can run, in the order of the page."""
    found: list[Snippet] = []
    for part in parts(path):
        if isinstance(part, Snippet):
            found.append(part)
        else:
            for line, text in part.commands():
                found.append(Snippet(page_name(path), line, part.section, "command", text, part.lead))
    return found

"""The commands and Python blocks of a Markdown page, in its order."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:\$ )?(?P<path>PYTHONPATH=\. )?valueshare (?P<words>.*)")
IN_SCRIPT = re.compile(r"\(valueshare (?P<words>[^)]*)\)")  # begin=(valueshare resume "$run")
FILE = re.compile(r"This is `(?P<name>\w+\.py)`")


@dataclass(frozen=True)
class Snippet:
    """A command without the word `valueshare`, or a Python block, and where it is."""

    page: str
    line: int
    section: str
    kind: Literal["command", "python"]
    text: str
    lead: str = ""  # the paragraph before it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the module that the block is the text of; None for code that runs."""
        found = FILE.search(self.lead)
        return found["name"] if found else None


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def snippets(path: Path) -> list[Snippet]:
    """Fenced and indented code of a page: Python blocks as they are, and lines that call `valueshare`."""
    found: list[Snippet] = []
    section, lead, fence = "", "", None
    block: list[str] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    continued = ""
    for number, line in enumerate(lines, 1):
        where = (page_name(path), number)
        if line.startswith("```"):
            if fence == "python":
                text = "\n".join(block) + "\n"
                found.append(Snippet(where[0], number - len(block), section, "python", text, lead))
            fence, block = (None, []) if fence is not None else (line.strip("`").strip(), [])
        elif fence == "python":
            block.append(line)
        elif fence is not None or line.startswith("    "):
            text = f"{continued} {line.strip()}".strip()
            continued = text.removesuffix("\\") if text.endswith("\\") else ""
            call = COMMAND.fullmatch(text) or (IN_SCRIPT.search(text) if fence else None)
            if call and not continued:
                found.append(
                    Snippet(*where, section, "command", call["words"], str(call.groupdict().get("path") or ""))
                )
        elif line.startswith("#"):
            section = line.lstrip("# ")
        elif line.strip():
            lead = line
    return found

"""Links between the Markdown files lead to files and headings that exist; the API pages name what can be imported."""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from page_snippets import PAGES, ROOT, page_name

MORE = [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)")
# What messages and comments of the package refer to: a page, and a heading of it in quotes.
REFERENCE = re.compile(r"\b(docs/[\w/-]+\.md)(?:, (?:'([^']*)'|(\w+)))?")
NAMED = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def without_code(path: Path) -> str:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4,}.*$", "", text, flags=re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(path), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


def broken(path: Path) -> list[str]:
    found = []
    for target, anchor in LINK.findall(without_code(path)):
        there = (path.parent / target).resolve() if target else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            found.append(f"{target}#{anchor}" if anchor else target)
    return found


@pytest.mark.parametrize("path", [*PAGES, *MORE], ids=page_name)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken(path) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A: one, two\n\n[a](#a-one-two) [b](#b) [c](a.md#a-one-two) [d](d.md) [e](https://e.org) ![f](f.png)\n"
    )
    assert broken(page) == ["#b", "d.md", "f.png"]


def stale_references(text: str) -> list[str]:
    """Pages and headings that a source file names and that do not exist, and words that stand where a heading would."""
    found = []
    for page, heading, unquoted in REFERENCE.findall(text):
        there = ROOT / page
        if unquoted or not there.exists() or (heading and f"# {heading}\n" not in without_code(there)):
            found.append(f"{page}, {heading or unquoted}")
    return found


def test_messages_name_headings_that_exist() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert {path.name: found for path in sources if (found := stale_references(path.read_text(encoding="utf-8")))} == {}


def test_a_stale_reference_is_found() -> None:
    text = "docs/training.md, 'Custom networks'; docs/training.md, 'Networks'; docs/training.md, networks; docs/no.md."
    assert stale_references(text) == ["docs/training.md, Networks", "docs/training.md, networks", "docs/no.md, "]


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    named = set(re.findall(r": ([\w/.-]+\.md)$", navigation, re.MULTILINE))
    there = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1:]}
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert named == there | notebooks | {"index.md", "CHANGELOG.md", "CONTRIBUTING.md"}


def test_the_api_pages_name_what_there_is() -> None:
    names = [name for path in (ROOT / "docs" / "api").glob("*.md") for name in NAMED.findall(path.read_text())]
    assert len(names) == len(set(names))
    for name in names:
        owner, _, attribute = name.rpartition(".")
        assert hasattr(import_module(owner), attribute) or find_spec(name), name
    import valueshare
    from valueshare import analysis

    public = {f"valueshare.{name}" for name in valueshare.__all__}
    assert public | {f"valueshare.analysis.{name}" for name in analysis.__all__} <= set(names)

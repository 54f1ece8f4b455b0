"""MkDocs hooks: files outside docs/ that pages link to, and notebooks, become pages; foreign servers are refused.

The Markdown files link to each other as files of the repository, so that they read well there too. Here README.md
becomes the first page, and a file of code the page of its text.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
CODE = ("examples/*.py", "benchmarks/*.py", "CITATION.cff")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
# What a browser fetches when it shows the page; links that are clicked may go anywhere.
FETCHED = re.compile(r"""<(?:script|img|iframe|source|video)\b[^>]*\bsrc=["']?(?:https?:)?//|"""
                     r"""<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload))[^>]*\bhref=["']?(?:https?:)?//|"""
                     r"""@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//""")  # fmt: skip


def on_files(files: Files, *, config: Any) -> Files:
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for path in sorted(path for pattern in CODE for path in ROOT.glob(pattern)):
        name, language = path.relative_to(ROOT).as_posix(), "python" if path.suffix == ".py" else "yaml"
        text = f"# {name}\n\n```{language}\n{path.read_text(encoding='utf-8')}```\n"
        files.append(File.generated(config, f"{name}.md", content=text))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = notebook.src_uri.replace(".ipynb", ".md")
        files.append(File.generated(config, page, content=notebook_page(Path(str(notebook.abs_src_path)))))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """The page with links that lead where its links of the repository do."""
    own = page.file.src_uri
    source = {page: name for name, page in PAGES.items()}.get(own, f"docs/{own}")

    def rewritten(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1]))
        inside = target.removeprefix("docs/")
        for there in (PAGES.get(target), inside if inside != target else f"{target}.md"):
            if there and (file := files.get_file_from_path(there)):
                return posixpath.relpath(file.src_uri, posixpath.dirname(own) or ".")
        return found[1]

    return LINK.sub(rewritten, markdown)


def on_post_build(*, config: Any) -> None:
    """Refuse pages that a browser completes from other servers."""
    site = Path(config["site_dir"])
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        if found := FETCHED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(site)} loads from another server: {found[0]}")


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with its outputs: text and images."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in data:
                parts.append(f"![](data:image/png;base64,{''.join(data['image/png']).replace(chr(10), '')})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    parts.append(f"[Download this notebook]({path.name})")
    return "\n\n".join(parts) + "\n"

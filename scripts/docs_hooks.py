"""MkDocs' hooks: pages of files outside docs/, the reference of every public name, and the gallery.

A link from a page to a file of the repository, such as `../recipes/detection.py`, leads to a page that shows the file.
"""

import importlib
import json
import posixpath
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PLACES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "recipes/README.md": "recipes/index.md",
    "benchmarks/README.md": "benchmarks/index.md",
    "benchmarks/parity.md": "benchmarks/parity.md",
    "benchmarks/gpu.md": "benchmarks/gpu.md",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|data:)([^)#\s]+)(?=[)#])")
ORIGINS: dict[str, str] = {}  # of the site's pages, in the repository


def origin(page: str) -> str:
    """The file of the repository that a page of the site shows."""
    return ORIGINS.get(page, f"docs/{page}")


def place(path: str) -> str:
    """The page of the site that shows a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in PLACES:
        return PLACES[path]
    return path + ("/index.md" if (ROOT / path).is_dir() else ".md")


def shown(path: str) -> str:
    """The Markdown of a file or folder that is no page by itself."""
    if path.endswith(".md"):
        return (ROOT / path).read_text()
    if path.endswith(".ipynb"):
        return notebook(json.loads((ROOT / path).read_text()))
    if (ROOT / path).is_dir():
        names = sorted(one.name for one in (ROOT / path).iterdir() if not one.name.startswith(("_", ".")))
        return f"# {path}/\n\n" + "".join(f"- `{name}`\n" for name in names)
    code = (ROOT / path).read_text()
    language = "bash" if code.startswith("#!/usr/bin/env bash") else {".yaml": "yaml"}.get(Path(path).suffix, "python")
    return f"# {path}\n\n````{language}\n{code}````\n"


def notebook(document: dict[str, Any]) -> str:
    """The Markdown of a notebook, with its outputs."""
    parts = []
    for cell in document["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if kind := next((kind for kind in data if kind.startswith("image/")), ""):
                picture = "".join(data[kind]).replace("\n", "")
                parts.append(f"![what the cell shows](data:{kind};base64,{picture})")
            elif "text/html" in data:
                parts.append("".join(data["text/html"]).replace("\n", ""))
            elif text := "".join(output.get("text", data.get("text/plain", ()))):
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts)


def linked(page: str, text: str) -> list[str]:
    """The files of the repository that a page links to."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    folder = posixpath.dirname(origin(page))
    return [posixpath.normpath(posixpath.join(folder, target)) for target in LINK.findall(text)]


# The reference

PARTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "loader": ("The loader", "torchdali", ("loader", "batch", "interop", "packing", "")),
    "datasets": ("Datasets", "torchdali", ("datasets",)),
    "python": ("Python code as a source", "torchdali", ("python",)),
    "samplers": ("Orders", "torchdali.samplers", ()),
    "errors": ("Errors", "torchdali", ("errors",)),
    "readers": ("DALI's readers", "torchdali.readers", ()),
    "experimental": ("DALI's experimental readers", "torchdali.readers.experimental", ()),
    "transforms": ("Transforms", "torchdali.transforms", ()),
    "presets": ("Presets", "torchdali.transforms.presets", ()),
    "kinds": ("Kinds", "torchdali.kinds", ()),
    "testing": ("Testing", "torchdali.testing", ()),
    "lightning": ("Lightning", "torchdali.lightning", ()),
    "configs": ("Configs of recipes", "torchdali.configs", ()),
}
"""By page: its title, the module whose names it has, and the parts of the package where these are defined (all of them
where there are none)."""


WITH_EXTRAS = {"torchdali.lightning": ["DataModule"], "torchdali.configs": ["ArgumentParser", "allow_only"]}
"""The names of modules whose imports need more packages than the pages do."""

RAND = (
    "torchdali.transforms.function.FunctionRand",
    "torchdali.transforms.per_sample.SampleRand",
    "torchdali.rand.BatchRand",
    "torchdali.rand.Rand",
)
"""The classes of the `rand` that functions get."""


def public(module: ModuleType) -> list[str]:
    """The public names that a module gives: those it exports, or else those it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    return [
        name
        for name, value in vars(module).items()
        if getattr(value, "__name__", "_").lstrip("_") == name and getattr(value, "__module__", "") == module.__name__
    ]


def part_of(name: str) -> str:
    """The part of the package, a module or a folder, that defines a name of `torchdali`; "" for new ones."""
    where = getattr(importlib.import_module("torchdali"), name).__module__.split(".")
    part = where[1] if len(where) > 1 else ""
    if any(module == f"torchdali.{part}" for _, module, _ in PARTS.values()):
        return part  # it has a page of its own
    return part if any(part in parts for _, _, parts in PARTS.values()) else ""


def reference() -> dict[str, str]:
    """The pages of the reference: Markdown by page."""
    pages = {"reference/rand.md": "# Random numbers in functions\n\n" + "\n\n".join(f"::: {name}" for name in RAND)}
    for key, (title, module_name, parts) in PARTS.items():
        if module_name in WITH_EXTRAS:
            head, names = "", WITH_EXTRAS[module_name]
        else:
            module = importlib.import_module(module_name)
            names = [name for name in public(module) if not parts or part_of(name) in parts]
            head = "" if parts else (module.__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
        body = "\n\n".join(f"::: {module_name}.{name}" for name in names)
        pages[f"reference/{key}.md"] = f"# {title}\n\n{head}\n\n{body}\n"
    return pages


# What MkDocs calls


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    made = reference()
    ORIGINS.update({place(path): path for path in PLACES if path != "README.md"})
    made |= {page: shown(path) for page, path in ORIGINS.items()}
    texts = {file.src_uri: file.content_string for file in files.documentation_pages()} | made
    for page, text in texts.items():
        for path in linked(page, text):
            if not path.startswith("docs/") and path not in PLACES and (ROOT / path).exists():
                ORIGINS[place(path)] = path
    made |= {page: shown(path) for page, path in ORIGINS.items() if page not in made}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for name, picture in gallery()[1].items():
        files.append(File.generated(config, f"gallery/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to files of the repository to their pages, and fill in the gallery and the reference's overview."""
    here = page.file.src_uri
    folder = posixpath.dirname(origin(here))

    def lead(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        return posixpath.relpath(place(path), posixpath.dirname(here) or ".")

    if not here.startswith("reference/"):
        markdown = LINK.sub(lead, markdown)
    if here == "gallery.md":
        markdown = markdown.replace("<!-- the gallery is put here -->", gallery()[0])
    if here == "reference.md":
        rows = [f"| [{title}](reference/{key}.md) | `{module}` |" for key, (title, module, _) in PARTS.items()]
        rows.append("| [Random numbers in functions](reference/rand.md) | what functions get as `rand` |")
        markdown = "# Reference\n\nEvery public name, with its docstring.\n\n| page | in |\n|---|---|\n" + "\n".join(
            rows
        )
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Let code in tables break where a reader would break it."""
    code = re.compile(r"(?<=<code>)[^<]+")
    cell = re.compile(r"<td.*?</td>", re.DOTALL)
    return cell.sub(
        lambda td: code.sub(lambda one: re.sub(r"([(\[,=/_]|\b\.(?=\w))", r"\1<wbr>", one[0]), td[0]), content
    )


GALLERY: list[tuple[str, dict[str, bytes]]] = []


def gallery() -> tuple[str, dict[str, bytes]]:
    """The gallery's Markdown and pictures, which are made once."""
    if not GALLERY:
        sys.path.insert(0, str(ROOT / "scripts"))
        GALLERY.append(importlib.import_module("docs_gallery").make_gallery())
    return GALLERY[0]

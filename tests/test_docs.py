"""The pages: their code runs and prints what they say, their links lead somewhere, and the site is built of them."""

from __future__ import annotations

import contextlib
import doctest
import html
import importlib
import io
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from torchdali import transforms as T
from torchdali.commands.main import main

from .docs_data import make_data
from .launcher import ROOT

PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "recipes/README.md",
    *(
        str(path.relative_to(ROOT))
        for folder in ("docs", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
]
WITH_PROCESSES = {"docs/data.md", "docs/bad-data.md", "docs/trainers.md"}

# Each block that does not run has its reason on its page, and here.
NOT_RUN = {
    "docs/detection.md": ["a detection model takes seconds on a CPU; recipes/detection.py trains one in the tests"],
    "docs/gpu.md": ["needs a GPU; tests/test_gpu.py does it"],
    "docs/questions.md": ["needs a bucket; tests/test_storage.py reads from an S3 server of its own"],
    "docs/transforms.md": ["Albumentations is no dependency of the tests"],
}


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        language: "python", "bash", "text", ...
        code: its lines.
        line: where it begins on its page, from 0.
        reason: why it does not run; "": it does.
    """

    language: str
    code: str
    line: int
    reason: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> Iterator[Block]:
    text = text_of(page)
    fence = r"(?:<!-- not run: ([^>]*?) -->\n+)?^```(\w*)\n(.*?)^```$"
    for found in re.finditer(fence, text, re.MULTILINE | re.DOTALL):
        reason, language, code = found.groups()
        yield Block(language, code, text[: found.start(3)].count("\n"), reason or "")


# Code


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    make_data(folder / "data")
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The models of the pages are too small to gain from a second one, which spins beside a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def following(page: str, block: Block) -> str:
    """The language of the next block."""
    return next((other.language for other in blocks(page) if other.line > block.line), "")


def run(block: Block, page: str, names: dict[str, Any]) -> str:
    """Run a block, and give what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if block.language == "python":
            # Line numbers are those of the page.
            exec(compile("\n" * block.line + block.code, str(ROOT / page), "exec"), names)
        else:
            for line in block.code.splitlines():
                if line.startswith("torchdali "):
                    assert main(shlex.split(line)[1:]) in (0, 1), line
    return out.getvalue()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.processes] * (page in WITH_PROCESSES))
        for page in PAGES
        if any(block.language in ("python", "bash") for block in blocks(page))
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*LeafSpec.*:FutureWarning")
def test_code_runs_and_prints_what_stands_below_it(
    page: str, workplace: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workplace)
    names: dict[str, Any] = {"__name__": "__main__"}  # so classes go to workers by value, as those of a script
    printed, checker = "", doctest.OutputChecker()
    for block in blocks(page):
        if block.language in ("python", "bash") and not block.reason:
            assert not printed, f"{page}, before line {block.line}: nothing says that it prints {printed!r}"
            printed = run(block, page, names)
            if block.language == "bash" and following(page, block) != "text":
                printed = ""
        elif block.language == "text":
            flags = doctest.ELLIPSIS
            assert checker.check_output(block.code, printed, flags), checker.output_difference(
                doctest.Example("", block.code, lineno=block.line), printed, flags
            )
            printed = ""


def test_blocks_that_do_not_run_are_those_with_a_reason() -> None:
    assert {page: reasons for page in PAGES if (reasons := [b.reason for b in blocks(page) if b.reason])} == NOT_RUN


def test_each_block_has_a_language() -> None:
    for page in PAGES:
        assert {block.language for block in blocks(page)} <= {"python", "bash", "text", "yaml"} or page in (
            "docs/architecture.md",  # a drawing
        ), page


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_what_is_there(page: str) -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    for block in blocks(page):
        if block.language == "bash":
            for path in re.findall(r"\b(?:scripts|recipes|configs|benchmarks|tests)/[\w./-]*\w", block.code):
                assert (ROOT / path).exists(), f"{page}, line {block.line}: {path}"
    for extra in re.findall(r"(?:torchdali|\.)\[(\w+)\]", text_of(page)):
        assert extra in extras, f"{page}: {extra}"


def test_the_page_on_transforms_names_each_of_them() -> None:
    text = text_of("docs/transforms.md")
    bases = {"Compose", "Lambda", "Mover", "SoundStep", "TimmRandAugment", "Transform", "traceable", "function"}
    assert [name for name in T.__all__ if not re.search(rf"\b{name}\b", text) and name not in bases] == []


# Links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
        path, _, anchor = "".join(target).partition("#")
        if path.startswith("https://"):
            continue
        assert not path.startswith(("http:", "/")), f"{page}: {path}"
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.resolve().is_relative_to(ROOT) and file.exists(), f"{page}: {path}"
        assert not anchor or anchor in anchors(file), f"{page}: {path}#{anchor}"


def test_paths_in_the_text_are_there() -> None:
    """Names of files that stand in code quotes, such as `scripts/quickstart`."""
    for page in PAGES:
        if page == "CHANGELOG.md":
            continue  # it tells of files that were
        for path in re.findall(r"`((?:scripts|recipes|configs|benchmarks|docs|tests)/[\w./-]*)`", text_of(page)):
            assert (ROOT / path).exists(), f"{page}: {path}"


# Looks


@pytest.mark.processes
def test_code_is_formatted_for_narrow_pages(tmp_path: Path) -> None:
    """As ruff has it for 84 columns, which fit beside the site's side bars."""
    code = [block.code for page in PAGES for block in blocks(page) if block.language == "python"]
    for number, one in enumerate(code):
        (tmp_path / f"{number}.py").write_text(one)
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "84", "--diff", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(len(line) for one in code for line in one.splitlines()) <= 84


def test_pictures_are_those_of_the_script(tmp_path: Path) -> None:
    """Of the real order, and of the rates in benchmarks/README.md: `python scripts/docs_pictures.py` draws them."""
    names = runpy.run_path(str(ROOT / "scripts" / "docs_pictures.py"))
    names["main"].__globals__["OUT"] = tmp_path
    names["main"]()
    for picture in sorted((ROOT / "docs" / "assets").glob("*.svg")):
        assert picture.read_text() == (tmp_path / picture.name).read_text(), picture.name
    assert {"torchdali", "dali-pipeline", "ndd-eager"} < set(names["ratios"]())


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in this process; a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(folder))
    config.plugins.on_startup(command="build", dirty=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torchvision's own, of its JPEG encoder
        build(config)
    return folder


@pytest.mark.slow
def test_links_of_the_site_lead_somewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    assert len(pages) > 40
    for page, text in pages.items():
        for target in re.findall(r'(?:href|src)="([^"]+)"', re.sub(r"<pre.*?</pre>", "", text, flags=re.DOTALL)):
            path, _, anchor = html.unescape(target).partition("#")
            if re.match(r"https?:|mailto:|data:", path):
                continue
            file = (page.parent / path.partition("?")[0]).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{page.relative_to(site)}: {target}"
            assert not anchor or file not in ids or anchor in ids[file] | {"__"} or anchor.startswith("__"), target


@pytest.mark.slow
@pytest.mark.parametrize("module", ["torchdali", "torchdali.transforms", "torchdali.readers", "torchdali.samplers"])
def test_each_public_name_is_in_the_reference(module: str, site: Path) -> None:
    text = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    for name in importlib.import_module(module).__all__:
        if callable(getattr(importlib.import_module(module), name)):
            assert re.search(rf'id="torchdali[\w.]*\.{name}"', text), name


@pytest.mark.slow
def test_the_gallery_has_every_transform_and_torchvisions_pixels(site: Path) -> None:
    text = (site / "gallery.html").read_text()
    pictured = set(re.findall(r'<h3 id="\w+">(\w+)<', text))
    without = set(re.findall(r"<li><code>(\w+)</code>:", text))
    assert pictured | without == set(T.__all__) and not pictured & without
    assert len(pictured) > 60 and len(without) < 12
    differences = [float(number) for number in re.findall(r"difference: ([\d.e-]+)</figcaption>", text)]
    assert len(differences) > 40 and max(differences) < 0.001  # levels of 255; only Normalize's is not 0

"""The shape of the package: layers, exports, versions."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import torchdali

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "torchdali"

# A module imports only from its own group and from groups above it.
GROUPS = {
    "values": (
        "errors elsewhere checks waits summary progress kinds ragged containers batch columns fields fingerprint "
        "signature"
    ),
    "randomness": "rand permutation seeding generators held_state",
    "placement": "cgroup distributed agreement storage paths",
    "order": "state order batches ids torch_samplers ahead drawn",
    "DALI and Pillow": "_dali.* pillow",
    "source": "clock batch_function options source samples collate buffers threads prefetch watchdog listeners",
    "formats": "formats.* schema",
    "workers": "workers.*",
    "sources": "datasets.* samplers.* readers.* python.*",
    "native": "native.*",
    "moves": "moves forms.*",
    "transforms": "transforms.*",
    "engine": "engine.*",
    "trainers": "trainers.*",
    "loader": "registered attribute ordering place forming stats iterator passes loader",
    "tools": "interop.* showing.* packing lightning configs testing",
    "package": "torchdali",
    "command line": "commands.* __main__",
}


def group_of(name: str) -> int:
    """The number of a module's group: it is named there, or its folder is."""
    folder = f"{name.partition('.')[0]}.*"
    (number,) = (i for i, group in enumerate(GROUPS.values()) if {name or "torchdali", folder} & set(group.split()))
    return number


@functools.cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
        for path in PACKAGE.rglob("*.py")
    }


def imported(name: str, path: Path) -> set[str]:
    """Modules of this package that a module imports, those for type checkers included."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package.split(".") if package else []
            base = base[: len(base) - (node.level - 1)]
            full = ".".join([*base, node.module] if node.module else base)
            inside = [".".join(filter(None, [full, alias.name])) for alias in node.names]
            found |= {one if one in modules() else full for one in inside}
    return found - {name}


def test_no_module_imports_from_a_lower_group():
    for name, path in modules().items():
        for other in imported(name, path):
            assert group_of(other) <= group_of(name), f"{name} imports {other}"


def test_imports_have_no_circles():
    """Not even among imports for type checkers: a circle is one module in two files."""
    imports = {name: imported(name, path) for name, path in modules().items()}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_one_folder_imports_dali():
    for name, path in modules().items():
        if re.search(r"^\s*(import|from) nvidia", path.read_text(), re.MULTILINE):
            assert name.partition(".")[0] == "_dali", name


def test_exports_are_sorted_and_there():
    for name in ("torchdali", "torchdali.transforms", "torchdali.datasets"):
        module = importlib.import_module(name)
        assert sorted(module.__all__, key=lambda key: (not key.isupper(), key)) == module.__all__  # as ruff sorts
        public = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", "").startswith("torchdali")
        }
        assert public <= set(module.__all__)
        assert all(getattr(module, key).__doc__ for key in module.__all__)
    assert {*torchdali._HOMES, "kinds", "readers", "transforms"} == set(torchdali.__all__) < set(dir(torchdali))
    assert torchdali.datasets.ImageFolder is torchdali.ImageFolder
    with pytest.raises(AttributeError, match="module 'torchdali' has no attribute 'Dataloader'"):
        torchdali.Dataloader  # noqa: B018


def test_the_changelog_knows_the_version():
    assert f"## [{torchdali.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_each_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        for dependency in group:
            assert re.search(rf'"{re.escape(dependency)}",? +# \w', text), f"{dependency} has no reason beside it"


@pytest.mark.processes
def test_types_and_lint():
    for command in (["mypy"], ["ruff", "check", "."], ["ruff", "format", "--check", "."]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (PACKAGE / "py.typed").exists()

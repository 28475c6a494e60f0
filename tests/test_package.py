"""The shape of the package: layers, exports, versions."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import torchdali

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "torchdali"

# A module imports only from modules above it.
LAYERS = [
    "errors", "arguments", "_dali", "random", "seeding", "permutation", "distributed", "sampler", "state",
    "batch", "images", "storage", "patterns", "components", "reading", "agreement",
    "datasets.base", "datasets.files", "datasets.memory", "datasets.index", "datasets.headers", "datasets.tar",
    "datasets.numpy", "datasets.protobuf", "datasets.recordio", "datasets.tfrecord", "datasets.lmdb",
    "datasets.subset", "datasets.concat", "datasets.of_torch", "datasets",
    "readers.native", "readers.cursor", "readers.reading", "readers.options", "readers.base", "readers.known",
    "readers.checks",
    "readers.index_files", "readers.arrays", "readers.files", "readers.tars", "readers.records", "readers.lmdbs",
    "readers.coco", "readers.nemo", "readers.video", "readers.fits", "readers.experimental", "readers",
    "transforms.base", "transforms.geometry", "transforms.resize", "transforms.color",
    "transforms.function", "transforms",
    "interop.advice", "interop.picture", "interop.rules", "interop.translation", "interop.samples",
    "interop.torchvision_dataset", "interop",
    "workers.info", "workers.memory", "workers.board", "workers.protocol", "workers.slots",
    "workers.failure", "workers.launch", "workers.crew", "workers.task", "workers.worker", "workers.pool", "workers",
    "sources.structure", "sources.crew", "sources.base", "sources.mapped", "sources.callback",
    "sources.iterate", "sources.iterable",
    "sources",
    "samplers.base", "samplers.permutations", "samplers.weighted", "samplers.class_balanced", "samplers.repeated",
    "samplers.length_bucket", "samplers.mix_sampler", "samplers.mix", "samplers",
    "collate", "engine", "engine.plan", "engine.work", "engine.eager", "engine.traced", "engine.host", "engine.repair",
    "prefetch", "engine.run", "integrations", "views", "assembly", "iterator", "loader", "lightning", "configs",
    "testing", "",
]  # fmt: skip


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip("."): path
        for path in PACKAGE.rglob("*.py")
    }


def imported(name: str, path: Path) -> set[str]:
    """Modules of this package that a module imports at run time."""
    tree = ast.parse(path.read_text())
    typing_only = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and node not in typing_only:
            base = package.split(".") if package else []
            base = base[: len(base) - (node.level - 1)]
            full = ".".join([*base, node.module] if node.module else base)
            inside = [".".join(filter(None, [full, alias.name])) for alias in node.names]
            found |= {one if one in modules() else full for one in inside}
    return found - {name}


def test_every_module_has_its_layer():
    assert set(LAYERS) == set(modules())


def test_no_module_imports_upwards():
    for name, path in modules().items():
        for other in imported(name, path):
            assert LAYERS.index(other) < LAYERS.index(name), f"{name or 'torchdali'} imports {other or 'torchdali'}"


def test_one_module_imports_dali():
    for name, path in modules().items():
        if re.search(r"^\s*(import|from) nvidia", path.read_text(), re.MULTILINE):
            assert name == "_dali", name


def test_exports_are_sorted_and_there():
    for name in ("torchdali", "torchdali.transforms", "torchdali.datasets"):
        module = importlib.import_module(name)
        assert sorted(module.__all__) == module.__all__
        public = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and getattr(value, "__module__", "").startswith("torchdali")
        }
        assert public <= set(module.__all__)
        assert all(getattr(module, key).__doc__ for key in module.__all__)


def test_the_changelog_knows_the_version():
    assert f"## [{torchdali.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_each_dependency_has_its_reason():
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        for dependency in group:
            assert re.search(rf'"{re.escape(dependency)}",? +# \w', text), f"{dependency} has no reason beside it"


def test_types_and_lint():
    for command in (["mypy"], ["ruff", "check", "."], ["ruff", "format", "--check", "."]):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (PACKAGE / "py.typed").exists()


def test_files_can_be_read_in_one_sitting():
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "recipes").glob("*.py")]:
        lines = len(path.read_text().splitlines())
        assert lines <= (200 if path.parent.name == "recipes" else 400), f"{path} has {lines} lines"

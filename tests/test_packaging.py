"""The wheel and the source distribution, as users install them: on their own, without the checkout."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import torchdali as td
from torchdali.native.build import BUILT, SOURCES, compiler
from torchdali.testing import make_image_folder

ROOT = Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "torchdali").rglob("*.py"))


def run(*command: Any, timeout: float = 280, **options: Any) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=timeout, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `scripts/wheel` writes: the source distribution, and wheels with the kernels and without."""
    folder = tmp_path_factory.mktemp("dist")
    run(ROOT / "scripts" / "wheel", folder, env={**os.environ, "TORCHDALI_VENV": sys.prefix})
    return folder


def wheel_of(built: Path) -> Path:
    """The wheel that pip chooses on this machine."""
    (wheel,) = built.glob(f"*manylinux*_{platform.machine()}.whl" if compiler() is not None else "*-none-any.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel; torch and the like are those of this one."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python*/site-packages")
    outer = {Path(path).resolve() for path in sys.path if path.endswith("site-packages")}
    (site / "outer.pth").write_text("".join(f"{path}\n" for path in sorted(outer)))
    wheel = wheel_of(built)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--ignore-installed")
    run(*pip, "--quiet", wheel, env=without_checkout())
    return python


def without_checkout() -> dict[str, str]:
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # of newer versions of pyright
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | quiet


TRAIN = """
import importlib.metadata, sys
import torch
before = set(sys.modules)
import torchdali as td
light = sorted(set(sys.modules) - before)
from torchdali import transforms as T
td.DataLoader
new = set(sys.modules) - before
from torchdali.native import images, library

assert td.__file__.startswith(sys.prefix), td.__file__
assert td.__version__ == importlib.metadata.version("torchdali")
loader = td.DataLoader(td.ImageFolder(sys.argv[1]), batch_size=4, shuffle=True, drop_last=True, device="cpu",
                       transform=T.Compose([T.RandomResizedCrop(16), T.Normalize([0.5] * 3, [0.25] * 3)]))
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.01)
losses = []
for images_, labels in loader:
    loss = torch.nn.functional.cross_entropy(net(images_), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
import json
facts = {"steps": len(losses), "finite": bool(torch.tensor(losses).isfinite().all()), "new": sorted(new),
         "light": light}
facts["kernel"] = [images.kernel() is not None, (library.FOLDER / library.BUILT).exists()]
print(json.dumps(facts))
"""


@pytest.mark.slow
@pytest.mark.processes
def test_a_training_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    data = make_image_folder(tmp_path / "data", classes=2, per_class=6)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    out = run(installed, script, data, cwd=tmp_path, env=without_checkout())
    facts = json.loads(out)
    assert facts["steps"] == 3 and facts["finite"] and facts["kernel"] == [compiler() is not None] * 2
    # Counted in modules, not in seconds: the import costs nothing, and a loader's modules about 0.2 s beside torch's.
    assert facts["light"] == ["torchdali"]
    own = {name for name in facts["new"] if name.partition(".")[0] == "torchdali"}
    others = {name.partition(".")[0] for name in facts["new"]} - {"torchdali"}
    others = {name for name in others if not name.startswith("_cython_")}  # numpy.random's
    assert not others - sys.stdlib_module_names - {"numpy", "cloudpickle"}
    assert len(own) <= 280 and len(facts["new"]) - len(own) <= 12
    assert not any(name.startswith("torchdali.showing") for name in own)
    assert run(installed.parent / "torchdali", "--version", cwd=tmp_path, env=without_checkout()) == (
        f"torchdali {td.__version__}\n"
    )


@pytest.mark.slow
@pytest.mark.processes
def test_what_is_in_them(built: Path, tmp_path: Path) -> None:
    wheel, (source,) = wheel_of(built), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        tags = re.findall(r"^Tag: (.+)$", archive.read(f"torchdali-{td.__version__}.dist-info/WHEEL").decode(), re.M)
    code = {str(path.relative_to(ROOT)) for path in PACKAGE}
    kernels = {str(path.relative_to(ROOT)) for path in SOURCES}
    assert code | kernels | {"torchdali/py.typed"} <= names
    assert {name.split("/")[0] for name in names} == {"torchdali", f"torchdali-{td.__version__}.dist-info"}
    assert (f"torchdali/native/{BUILT}" in names) == (compiler() is not None)

    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "recipes", "tests"} <= {path.name for path in folder.iterdir()}
    # The wheel's name says how old a glibc will do, and PyPI takes no other. One without kernels is for the rest.
    if compiler() is not None:
        found = [re.fullmatch(r"py3-none-manylinux_2_(\d+)_\w+|py3-none-manylinux2014_\w+", tag) for tag in tags]
        assert all(found) and max(int(one[1]) for one in found if one is not None and one[1]) <= 28
    # Of each machine whose compiler is here, one, and the library is that machine's: byte 18 of its header says it.
    codes = {"x86_64": 62, "aarch64": 183}
    for machine, code in codes.items():
        found = list(built.glob(f"*manylinux*_{machine}.whl"))
        here = shutil.which(f"{machine}-linux-gnu-gcc") or (machine == platform.machine() and compiler())
        assert len(found) == bool(here)
        for wheel in found:
            with zipfile.ZipFile(wheel) as archive:
                assert names <= set(archive.namelist())
                assert archive.read(f"torchdali/native/{BUILT}")[18] == code
    (plain,) = built.glob("*-none-any.whl")
    with zipfile.ZipFile(plain) as archive:
        assert names - set(archive.namelist()) <= {f"torchdali/native/{BUILT}"}
    # Without a compiler, the wheel is one of Python alone by itself.
    bare = {**without_checkout(), "PATH": "/nowhere", "CC": ""}
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "bare", folder, env=bare)
    (plain,) = (tmp_path / "bare").iterdir()
    with zipfile.ZipFile(plain) as archive:
        assert names - set(archive.namelist()) <= {f"torchdali/native/{BUILT}"}
    assert plain.name == f"torchdali-{td.__version__}-py3-none-any.whl"


@pytest.mark.slow
@pytest.mark.processes
def test_types_of_the_wheel_for_pyright(installed: Path, tmp_path: Path) -> None:
    """mypy's part is in `test_types_and_lint`."""
    fine, wrong = tmp_path / "fine.py", tmp_path / "wrong.py"
    fine.write_text((ROOT / "tests" / "typed_user.py").read_text())
    wrong.write_text("import torchdali as td\nloader: int = td.DataLoader([1], batchsize=3)\n")
    command = (sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", installed, fine, wrong)
    done = subprocess.run(
        [str(part) for part in command], cwd=tmp_path, env=without_checkout(), capture_output=True, text=True,
        timeout=280, check=False,
    )  # fmt: skip
    found = [(Path(one["file"]).name, one["rule"]) for one in json.loads(done.stdout)["generalDiagnostics"]]
    assert found == [("wrong.py", "reportAssignmentType"), ("wrong.py", "reportCallIssue")], done.stdout + done.stderr


GONE = frozenset(
    "asynchat asyncore distutils imp smtpd aifc audioop cgi cgitb chunk crypt imghdr mailcap msilib nis nntplib "
    "ossaudiodev pipes sndhdr spwd sunau telnetlib uu xdrlib lib2to3".split()
)
"""Modules that Python 3.12 and 3.13 have dropped."""


@pytest.mark.processes
def test_the_sources_are_of_every_python() -> None:
    """As far as one Python can tell: they parse as the oldest one's, and import nothing that newer ones dropped."""
    for path in PACKAGE:
        tree = ast.parse(path.read_text(), str(path), feature_version=(3, 11))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not GONE & {name.partition(".")[0] for name in names}, path
    ruff = (sys.executable, "-m", "ruff", "check", "--isolated", "--quiet", "--select=E9,F63,F7,F82,W605,YTT")
    run(*ruff, "--target-version=py313", ROOT / "torchdali")  # py311 is the target of all other checks


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert re.fullmatch(r">=3\.(\d+)", project["requires-python"])[1] == "11"  # type: ignore[index]
    extras = set(project["optional-dependencies"])
    asked = {name for path in PACKAGE for name in re.findall(r"torchdali\[([\w,]+)\]", path.read_text())}
    assert {extra for names in asked for extra in names.split(",")} <= extras
    assert importlib.metadata.version("build")

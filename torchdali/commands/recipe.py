"""The loader of a recipe's config: the recipe's own `make_loader`, called with what the config says.

A recipe is a script RECIPES/NAME.py whose function `main` takes the sections of its config, and `make_loader` the name
of a split, and any of: sections of the config by their names, seed, world_size and device.  A config without a
`make_loader` describes a `torchdali.lightning.DataModule` in its section `data`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import nearest_path
from ..errors import first_line, let_through
from .command import UsageError, wrong_input

if TYPE_CHECKING:
    from ..loader import DataLoader

SPLITS = ("train", "val")
_DATASETS = ("train", "val", "test", "predict")  # of a DataModule


def is_config(path: str) -> bool:
    """Whether a path is that of a config, by its name."""
    return path.endswith((".yaml", ".yml"))


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that belong to a config."""
    parser.add_argument("--split", choices=SPLITS, help="of a config (default: train)")
    parser.add_argument("--recipe", metavar="SCRIPT", help="of a config (default: ../../recipes/NAME.py)")


def check_arguments(arguments: argparse.Namespace, paths: Sequence[str], of_data: Sequence[str] = ()) -> None:
    """Check that no argument belongs to a config where there is none, or to data where there is only a config.

    Args:
        arguments: those of the command; one that was not written is None, or False.
        paths: what the command was given.
        of_data: the names of the arguments that belong to data.

    Raises:
        UsageError: one does.
    """
    if not any(map(is_config, paths)):
        for name in ("split", "recipe"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name} is for a recipe's config, such as configs/NAME/some.yaml, got {paths[0]}")
    elif all(map(is_config, paths)):
        for name in of_data:
            if getattr(arguments, name) not in (None, False):
                option = name.replace("_", "-")
                raise UsageError(f"--{option} is for data, and a config says its own: write the recipe's option")


def loader_of_arguments(arguments: argparse.Namespace, config: str) -> DataLoader:
    """Make the loader of a config, as the command line has it.

    Raises:
        UsageError: it can't be made.
    """
    return loader_of(config, arguments.more, arguments.split or "train", arguments.recipe)


def loader_of(config: str, more: Sequence[str] = (), split: str = "train", recipe: str | None = None) -> DataLoader:
    """Make the loader of a config, on the CPU and for one process.

    Args:
        config: the YAML file.
        more: options that override it, such as "--data.root=photos".
        split: "train" or "val".
        recipe: the script; None: recipes/NAME.py beside the folder configs/NAME of the config.

    Raises:
        UsageError: a file is missing, the config does not fit the recipe, or the loader can't be made.
    """
    if not os.path.isfile(config):
        raise UsageError(f"{config} does not exist{nearest_path(config)}")
    script = Path(recipe) if recipe is not None else _script_of(Path(config))
    if not script.is_file():
        hint = "" if recipe is not None else ": write --recipe SCRIPT"
        raise UsageError(f"the recipe {script} of {config} does not exist{nearest_path(script)}{hint}")
    import torch

    try:
        configs = importlib.import_module("torchdali.configs")
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise UsageError("configs of recipes need jsonargparse: pip install 'torchdali[recipes]'") from error
    parser = configs.ArgumentParser(exit_on_error=False, prog=script.name)
    with wrong_input(config), _errors_of(script):
        module = _load(script)
        make = getattr(module, "make_loader", None)
        if make is None or not hasattr(module, "main"):
            return _of_data_module(
                parser, yaml.safe_load(Path(config).read_text(encoding="utf-8")), more, split, script
            )
        parser.add_argument("--config", action="config")
        parser.add_function_arguments(module.main, fail_untyped=False)
        values = {n: _on_cpu(one) for n, one in vars(_parsed(parser, [f"--config={config}", *more])).items()}
        known = {**values, "split": split, "world_size": 1, "device": torch.device("cpu")}
        known["seed"] = next((one.seed for one in values.values() if hasattr(one, "seed")), 0)
        wanted = inspect.signature(make).parameters
        missing = [name for name, one in wanted.items() if name not in known and one.default is one.empty]
        if missing:
            raise ValueError(f"make_loader of {script} needs {missing[0]}, which is no section of the config")
        made: DataLoader = make(**{name: known[name] for name in wanted if name in known})
        return made


@contextmanager
def _errors_of(script: Path) -> Iterator[None]:
    """Turn other errors of a recipe's own code than those about files into a `UsageError` with its line."""
    try:
        yield
    except (UsageError, OSError, ValueError, TypeError, ImportError):
        raise  # they have words of their own
    except Exception as error:
        let_through(error)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f"{script}, line {lines[-1]}" if lines else str(script)
        raise UsageError(f"{where}: {type(error).__name__}: {first_line(error)}") from error


def _script_of(config: Path) -> Path:
    """Give recipes/NAME.py for configs/NAME/some.yaml."""
    folder = config.absolute().parent
    return folder.parent.parent / "recipes" / f"{folder.name}.py"


def _load(script: Path) -> Any:
    name = f"torchdali_recipe_{script.stem}"
    spec = importlib.util.spec_from_file_location(name, script)
    if spec is None or spec.loader is None:
        raise UsageError(f"a Python script was expected as recipe, got {script}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    sys.path.insert(0, str(script.parent.absolute()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _on_cpu(section: Any) -> Any:
    """Set the device of a section of the config, which a recipe sets itself where it is "auto"."""
    has_one = dataclasses.is_dataclass(section) and not isinstance(section, type) and hasattr(section, "device")
    return dataclasses.replace(section, device="cpu") if has_one else section


def _parsed(parser: Any, arguments: list[str]) -> Any:
    try:
        return parser.instantiate(parser.parse_args(arguments))
    except Exception as error:  # jsonargparse's, of a config that does not fit
        let_through(error)
        first, *others = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        while first.endswith(":") and others:  # it only says where
            first += f" {others.pop(0).removeprefix('- ')}"
        reasons = [line.removeprefix("- ") for line in others if line.startswith("- ")]  # of each type of several
        raise UsageError("; ".join([first, *reasons[:1]])) from error


def _of_data_module(parser: Any, content: Any, more: Sequence[str], split: str, script: Path) -> DataLoader:
    if not isinstance(content, dict) or not isinstance(content.get("data"), dict):
        raise UsageError(f"{script} has no make_loader, and its config no section data of a DataModule")
    module = importlib.import_module("torchdali.lightning").DataModule
    parser.add_class_arguments(module, "data")
    own = {name: value for name, value in content["data"].items() if name == split or name not in _DATASETS}
    data = _parsed(parser, [f"--data={json.dumps(own)}", *more]).data
    loader: DataLoader = getattr(data, f"{split}_dataloader")()
    return loader

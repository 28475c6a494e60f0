"""Decode data once, into a folder that torchdali.Packed reads in every epoch.

SRC is a recipe's config (configs/NAME/some.yaml) or data, as for `preview`;
DST is a new folder.  Called again after an interruption, it goes on after the
last whole shard.  Without --resize, the pixels and the checkpoints of a
training are those of the files, bit for bit.
"""

from __future__ import annotations

import argparse
import re
import time
from typing import TYPE_CHECKING, Any

from ..errors import TorchDaliError, first_line
from .command import add_index_dir, positive, wrong_input
from .preview import passes_on, read
from .recipe import add_recipe, check_arguments
from .terminal import note, say, say_json

if TYPE_CHECKING:
    from ..datasets import Packed

__all__ = ["SUMMARY", "add_arguments", "passes_on", "run"]

SUMMARY = "decode data once, for every epoch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("path", metavar="SRC", help="a config, or data")
    parser.add_argument("target", metavar="DST", help="a new folder, or the one of an interrupted call")
    parser.add_argument("--resize", type=_size, metavar="N", help="to this shorter side, or to HEIGHTxWIDTH")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad samples out, and list them")
    parser.add_argument("--verify", action="store_true", help="read all back, and compare checksums")
    parser.add_argument("--shard-mib", type=positive, default=512, metavar="N", help="of a shard (default: 512)")
    parser.add_argument("--threads", type=positive, metavar="N", help="that decode (default: one per core)")
    add_recipe(parser)
    add_index_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Pack; 1: a sample is bad, or a file of the pack is damaged."""
    from ..loader import DataLoader
    from ..packing import pack
    from ..transforms import Resize

    check_arguments(arguments, [arguments.path], ["index_dir"])
    source = read(arguments)
    dataset = source.dataset if isinstance(source, DataLoader) else source
    transform = None if arguments.resize is None else Resize(arguments.resize)
    start = time.monotonic()
    try:
        with wrong_input():
            packed = pack(
                dataset,
                arguments.target,
                transform,
                progress=True,
                shard_bytes=arguments.shard_mib << 20,
                on_bad_sample="skip" if arguments.skip_bad else "raise",
                num_threads=arguments.threads,
            )
    except TorchDaliError as error:
        hint = "" if arguments.skip_bad else " (--skip-bad leaves bad samples out)"
        note(f"torchdali: {first_line(error)}{hint}")
        return 1
    damaged = _damage(packed) if arguments.verify else ""
    _report(arguments, packed, time.monotonic() - start, damaged)
    return 1 if damaged or packed.left_out else 0


def _damage(packed: Packed) -> str:
    try:
        packed.verify(progress=True)
    except ValueError as error:
        return " ".join(str(error).split())
    return ""


def _report(arguments: argparse.Namespace, packed: Packed, seconds: float, damaged: str) -> None:
    size = sum(file.stat().st_size for file in packed.folder.iterdir())
    if arguments.json:
        found: dict[str, Any] = {"command": "pack", "path": str(packed.folder), "samples": len(packed), "bytes": size}
        found |= {"seconds": round(seconds, 3), "fields": {name: str(kind) for name, kind in packed.kinds.items()}}
        found["left_out"] = [{"index": bad.index, "path": bad.path, "reason": bad.reason} for bad in packed.left_out]
        say_json(found | {"verified": arguments.verify and not damaged, "damage": damaged})
        return
    verified = "; verified" if arguments.verify and not damaged else ""
    say(f"{packed.folder}: {len(packed):,} samples, {size / 1e6:,.1f} MB, {seconds:.1f} s{verified}")
    say(f"write torchdali.Packed({str(packed.folder)!r})")
    for bad in packed.left_out:
        note(f"torchdali: left out: sample {bad.index} ({bad.path}): {bad.stage} failed: {bad.reason:.200}")
    if damaged:
        note(f"torchdali: {damaged}")


def _size(text: str) -> int | tuple[int, int]:
    """Parse N or HEIGHTxWIDTH, for argparse."""
    if found := re.fullmatch(r"(\d+)(?:x(\d+))?", text):
        height, width = int(found[1]), found[2]
        if height and width is None:
            return height
        if height and width and int(width):
            return height, int(width)
    raise argparse.ArgumentTypeError(f"pixels such as 256 or 256x320 were expected, got {text!r}")

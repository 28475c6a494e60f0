"""A training script that a scheduler warns by signals to its whole process group.

When all of them have come it saves a checkpoint, waits for its input's end, reads two more batches, and writes both.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torchdali as td
from tests import source_datasets as S

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def make_loader(num_workers: int, method: str | None = None) -> td.DataLoader:
    return td.DataLoader(
        S.Forms("value"),
        2,
        shuffle=True,
        device="cpu",
        num_workers=num_workers,
        multiprocessing_context=method,
        persistent_workers=num_workers > 0,
    )


def main(method: str, out: Path) -> None:
    came: set[int] = set()

    def note(number: int, frame: FrameType | None) -> None:
        came.add(number)

    for number in SIGNALS:
        signal.signal(number, note)
    state: dict[str, Any] = {}
    after: list[list[int]] = []
    loader = make_loader(2, method)
    say("ready")
    while len(after) < 2:
        for batch in loader:
            if state:
                after.append(batch.tolist())
            elif came == set(SIGNALS):
                state = loader.state_dict()
                say(*loader.source.pools.pids)
                sys.stdin.read()
            if len(after) == 2:
                break
    out.write_text(json.dumps([state, after]))
    if method == "fork":  # the others end without a word of theirs
        loader.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

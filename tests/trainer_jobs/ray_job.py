"""The recipe for Ray on a real cluster of one machine: `ray_job.py DIGITS OUT`.

Two workers train, and one dies after step 7, in the middle of the epoch.  One goes on, after the last checkpoint that
Ray knows; it learns of them a little later.  Each worker writes the digests of its batches to
OUT/samples/EPOCH.POSITION.WORKERS.RANK.json; the position is the one after them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import ray.cloudpickle

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))

import ray_train  # noqa: E402

import torchdali as td  # noqa: E402
from torchdali.testing import sample_digests  # noqa: E402

make_loader = ray_train.make_loader


def main(digits: str, out: str) -> None:
    samples = Path(out, "samples")
    samples.mkdir(parents=True)

    def watched(split: str, *arguments: Any) -> td.DataLoader:
        """The recipe's loader, which also writes the digests of what it hands out."""
        loader = make_loader(split, *arguments)
        begin = td.DataLoader.__iter__

        def iterate(self: td.DataLoader) -> Iterator[Any]:
            for batch in begin(self):
                if self is loader and split == "train":
                    state, here = self.state_dict(), ray.train.get_context()
                    place = state["epoch"], state["samples_seen"], here.get_world_size(), here.get_world_rank()
                    path = samples / "{}.{}.{}.{}.json".format(*place)
                    path.write_text(json.dumps(sample_digests(batch)))
                yield batch

        td.DataLoader.__iter__ = iterate  # type: ignore[method-assign]  # in this worker alone
        return loader

    ray_train.make_loader = watched
    ray.cloudpickle.register_pickle_by_value(ray_train)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=True)
    data = ray_train.DataConfig(
        root=digits, batch_size=126, image_size=8, val_resize=8, crop_scale=(0.6, 1.0), flip=0.0
    )
    tiny = dict(output=f"{out}/run", gpu=False, model="small_cnn", epochs=1, lr=0.003, checkpoint_every=2)
    try:
        ray_train.main(data, ray_train.TrainConfig(workers=2, kill_at_step=7, max_failures=0, **tiny))
    except ray.train.TrainingFailedError:
        Path(out, "died").touch()
    ray_train.main(data, ray_train.TrainConfig(workers=1, **tiny))
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The recipe for Ray on a real cluster of one machine: `ray_job.py DIGITS OUT`.

Two workers train for one epoch; the first dies after step 5.  Then three go on to the end of the second epoch.  Each
worker writes the digests of its batches to OUT/samples/EPOCH.POSITION.RANK.json, where the position is that after them.
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
                    state, rank = self.state_dict(), ray.train.get_context().get_world_rank()
                    path = samples / f"{state['epoch']}.{state['samples_seen']}.{rank}.json"
                    found = json.dumps(sample_digests(batch))
                    # What two attempts deliver for one place has to be the same.
                    assert not path.exists() or path.read_text() == found, path
                    path.write_text(found)
                yield batch

        td.DataLoader.__iter__ = iterate  # type: ignore[method-assign]  # in this worker alone
        return loader

    ray_train.make_loader = watched
    ray.cloudpickle.register_pickle_by_value(ray_train)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=True)
    data = ray_train.DataConfig(
        root=digits, batch_size=126, image_size=8, val_resize=8, crop_scale=(0.6, 1.0), flip=0.0
    )
    tiny = dict(output=f"{out}/run", gpu=False, model="small_cnn", lr=0.003, checkpoint_every=2)
    ray_train.main(data, ray_train.TrainConfig(workers=2, epochs=1, kill_at_step=5, **tiny))
    ray_train.main(data, ray_train.TrainConfig(workers=3, epochs=2, **tiny))
    ray.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

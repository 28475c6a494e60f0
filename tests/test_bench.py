"""`torchdali bench`: real loaders and peers, for fractions of a second each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchdali.commands.main import main
from torchdali.testing import make_image_folder

CONFIGS = Path(__file__).parent.parent / "configs"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_folder(tmp_path_factory.mktemp("photos"), classes=2, per_class=12)


def as_json(capsys: pytest.CaptureFixture[str], *argv: Any) -> Any:
    assert main(["bench", *map(str, argv), "--seconds", "0.05", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_threads_and_batch_sizes_are_tried_and_compared(photos, capsys):
    said = as_json(capsys, photos, "--size", 16, "--threads", "1,2", "--batch-size", "4,8", "--peer", "dali")
    tried = [(run["threads"], run["batch_size"]) for run in said["runs"]]
    assert tried[:2] == [(1, 4), (2, 4)] and len(tried) == 3 and tried[2][1] == 8
    best = max(said["runs"], key=lambda run: run["samples_per_second"])
    assert said["best"]["num_threads"] == best["threads"] and said["best"]["advice"] == best["stats"]["advice"]
    assert all(run["limit"] and run["stats"]["stages"]["decode"]["share"] > 0 for run in said["runs"])
    assert said["peer"]["name"] == "DALI's pipeline mode" and len(said["peer"]["ratios"]) == 3
    assert all(rate > 0 for rates in said["peer"]["rates"].values() for rate in rates)


def test_in_words(photos, capsys):
    argv = ["bench", str(photos), "--transform", "none", "--threads", "1", "--batch-size", "4", "--seconds", "0.05"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "24 samples, transform None" in out and "num_threads  batch_size  samples/s" in out
    assert "num_threads=1 and batch_size=4 are the fastest of these" in out and "ms per batch" in out
    assert "bench" in err  # the progress


@pytest.mark.processes
@pytest.mark.slow
def test_a_config_beside_torch(photos, tmp_path, capsys):
    (tmp_path / "train").symlink_to(photos)
    config = CONFIGS / "image_classification" / "tiny.yaml"
    more = [f"--data.root={tmp_path}", "--data.batch_size=6", "--threads", 1, "--batch-size", 6, "--peer", "torch"]
    said = as_json(capsys, config, *more)
    assert "RandomResizedCrop(size=8" in said["transform"] and said["runs"][0]["batch_size"] == 6
    assert said["peer"]["name"] == "torch's DataLoader" and min(said["peer"]["ratios"]) > 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("{photos}x", "x does not exist (did you mean "),
        ("{photos} --threads 0", "integers of at least 1, such as 1,2,4, were expected, got '0'"),
        ("{photos} --batch-size 4,x", "integers of at least 1, such as 1,2,4, were expected, got '4,x'"),
        ("{photos} --seconds -1", "a number of seconds above 0 was expected, got '-1'"),
        ("{photos} --size no", "a number of pixels from 1 to 16384 was expected, got 'no'"),
        ("{photos} --device cuda", "--device cuda was written, and torch sees no GPU here"),
        ("{photos} --peer spdl", "invalid choice: 'spdl'"),
        ("{photos} --transform none --peer dali", "compares batches of images of one size: write --transform train"),
        ("{configs}/image_classification/tiny.yaml --size 8", "--size is for data, and a config says its own"),
        ("{configs}/image_classification/tiny.yaml --data.rot=x", "data.rot"),
        ("{photos} --thread 2", "bench knows no argument '--thread' (did you mean '--threads'?)"),
    ],
)
def test_wrong_input_is_one_sentence(argv, said, photos, capsys):
    assert main(["bench", *argv.format(photos=photos, configs=CONFIGS).split()]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("torchdali: ") and err.count("\n") == 1 and said in err

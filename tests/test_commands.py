"""`torchdali` on the command line: real files, real processes that die, and wrong input as a new user writes it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali.commands import bench, examine, findings, isolated, peers, terminal
from torchdali.commands.collection import Sample, collect
from torchdali.commands.frame import COMMANDS
from torchdali.commands.inspect import problems
from torchdali.commands.isolated import Outcome, run_isolated
from torchdali.commands.main import main
from torchdali.formats.report import Entry, read_report
from torchdali.progress import progress_bar
from torchdali.state import VERSION
from torchdali.testing import garble_file, make_image_folder, truncate_file

from .reader_files import image_file, mxnet_case, tfrecord_case
from .test_image_headers import promise

ROOT = Path(__file__).parent.parent
ODD = Path(__file__).parent / "data" / "odd-images"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def write_tar(path: Path, parts: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def as_json(capsys: pytest.CaptureFixture[str], *argv: Any, code: int = 0) -> Any:
    assert main([*map(str, argv), "--json"]) == code
    return json.loads(capsys.readouterr().out)


# check


def collection(root: Path) -> dict[str, str]:
    """A folder with one file of each kind of fault, and the status of each by its name below the folder."""
    make_image_folder(root, classes=2, per_class=3)
    one = root / "class_0"
    truncate_file(one / "0001.jpg", keep=0.7)
    garble_file(one / "0002.jpg")
    (one / "empty.png").touch()
    (one / "bomb.png").write_bytes(promise("PNG", 20_000))
    shutil.copy(ODD / "balloon_eciRGBv2_aware.jp2", one / "kills.jp2")
    shutil.copy(ODD / "truncated_image.png", one / "cut.png")
    shutil.copy(ODD / "hopper.gif", root / "class_1" / "by_pillow.gif")
    shutil.copy(one / "0000.jpg", root / "class_1" / "same.jpg")
    (root / "notes.md").write_text("no image")
    return {
        "class_0/0001.jpg": "bad", "class_0/0002.jpg": "refused", "class_0/empty.png": "refused",
        "class_0/bomb.png": "oversized", "class_0/kills.jp2": "bad", "class_0/cut.png": "bad",
        "class_1/by_pillow.gif": "pillow", "class_1/same.jpg": "duplicate",
    }  # fmt: skip


@pytest.mark.processes
def test_check_names_every_fault_and_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    root, report, table = tmp_path / "data", tmp_path / "report.jsonl", tmp_path / "faults.csv"
    expected = collection(root)
    argv = ["check", root, "--report", report, "--csv", table, "--slow", "1e9"]
    said = as_json(capsys, *argv, "--jobs", 2, code=1)
    found = {os.path.relpath(finding["path"], root): finding for finding in said["findings"]}
    assert {name: finding["findings"] for name, finding in found.items()} == {n: [k] for n, k in expected.items()}
    summary = {"samples": 12, "good": 6, "crashed": 0, "stuck": 0, "refused": 2, "bad": 3, "oversized": 1}
    assert said["summary"] == summary | {"pillow": 1, "duplicate": 1, "slow": 0}
    assert "pillow" in found["class_0/0001.jpg"]["refused_by"] and "truncated" in found["class_0/0001.jpg"]["reason"]
    assert "width 20000 and height 20000" in found["class_0/bomb.png"]["reason"]
    assert found["class_0/empty.png"]["reason"] == "the file is empty"
    assert found["class_1/same.jpg"]["same_as"] == str(root / "class_0" / "0000.jpg")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert {os.path.relpath(row["path"], root): row["findings"] for row in rows} == expected

    # In words, from the report alone: no process is started.
    def none(make: Any, items: list[Sample], jobs: int, timeout: float) -> Any:
        assert not items
        return iter(())

    with monkeypatch.context() as patched:
        patched.setattr(isolated, "run_isolated", none)
        assert main([str(one) for one in argv]) == 1
    out, err = capsys.readouterr()
    assert (
        "12 of 12 samples stand in" in err
        and "bad: 3 do not decode wholly" in out
        and f"exclude={str(report)!r}" in out
    )

    # A file that changes is looked at again, and so is one whose line was torn.
    shutil.copy(root / "class_0" / "0000.jpg", root / "class_0" / "0001.jpg")
    lines = report.read_text().splitlines(keepends=True)
    report.write_text("".join(lines[:-1]) + lines[-1][:40])
    again = {json.loads(lines[-1])["path"], str(root / "class_0" / "0001.jpg")}
    asked = []

    def counted(make: Any, items: list[Sample], jobs: int, timeout: float) -> Any:
        asked.extend(items)
        return run_isolated(make, items, jobs, timeout)

    monkeypatch.setattr(isolated, "run_isolated", counted)
    said = as_json(capsys, *argv, "--jobs", 1, code=1)
    assert {sample.path for sample in asked} == again
    assert said["summary"] == summary | {"good": 7, "bad": 2, "pillow": 1, "duplicate": 2, "slow": 0}
    assert len(read_report(report)) == 12

    # A dataset without the bad files loads from end to end.
    extensions = (".jpg", ".png", ".jp2", ".gif")
    whole = td.ImageFolder(root, extensions=extensions)
    clean = td.ImageFolder(root, extensions=extensions, exclude=report)
    assert len(whole) == 12 and len(clean) == 7 and clean.classes == whole.classes
    names = [os.path.relpath(path, root) for path in clean.paths]
    assert not {name for name in names if expected.get(name) in ("refused", "oversized")}
    assert clean.targets == [int(name.startswith("class_1")) for name in names]
    assert clean.fingerprint() != whole.fingerprint()
    assert clean.fingerprint() == td.FileDataset(clean.paths, clean.targets).fingerprint()
    labels = [label for _, batch in td.DataLoader(clean, 3, device="cpu") for label in batch.tolist()]
    assert labels == clean.targets


def make_fragile(max_pixels: int | None) -> Callable[[Any], Any]:
    """In the place of `make_examine`: dies, hangs or raises where the name says so."""

    def examine(sample: Sample) -> Entry:
        name = os.path.basename(sample.path)
        if "dies" in name:
            os.abort()
        if "hangs" in name:
            time.sleep(600)
        if "raises" in name:
            raise KeyError("no such thing")
        return Entry(sample.path, sample.version, "good", "dali", max_pixels=max_pixels)

    return examine


@pytest.mark.processes
def test_a_crash_and_a_hang_cost_one_file_each(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(examine, "make_examine", make_fragile)
    for name in ("a", "b-dies", "c", "d-hangs", "e", "f\udcff-dies", "g-raises", "h"):
        (tmp_path / f"{name}.jpg").write_bytes(image_file(1))
    said = as_json(capsys, "check", tmp_path, "--jobs", 2, "--timeout", 3, "--report", tmp_path / "r", code=1)
    found = {Path(one["path"]).stem: (one["status"], one["reason"]) for one in said["findings"]}
    assert found == {
        "b-dies": ("crashed", "its process died of SIGABRT"),
        "d-hangs": ("stuck", "no answer within 3 s"),
        "f\udcff-dies": ("crashed", "its process died of SIGABRT"),
        "g-raises": ("crashed", "KeyError: 'no such thing'"),
    }
    assert said["summary"]["good"] == 4
    assert {entry.status for entry in read_report(tmp_path / "r").values()} == {"good", "crashed", "stuck"}
    # In words, also a name that is not UTF-8; all stand in the report.
    argv = ["check", tmp_path, "--report", tmp_path / "r", "--csv", tmp_path / "faults.csv"]
    assert main([str(one) for one in argv]) == 1
    assert "crashed: 3 ended a decoder's process" in (out := capsys.readouterr().out) and "f\\udcff-dies.jpg" in out
    assert b"f\xff-dies.jpg" in (tmp_path / "faults.csv").read_bytes()


def make_dali_alone() -> Callable[[str], Any]:
    """Send any file to DALI, whatever its header says."""
    dali = examine._Dali()
    return lambda path: dali(np.fromfile(path, np.uint8))


@pytest.mark.processes
def test_a_file_that_kills_dali(tmp_path):
    """JPEG 2000 is never sent there; if it were, the next file would still be decoded."""
    files = [str(ODD / name) for name in ("hopper.jpg", "balloon_eciRGBv2_aware.jp2", "hopper.png")]
    outcomes = list(run_isolated(make_dali_alone, files, 1, 300))
    assert [outcome.fault for outcome in outcomes] == ["", "crashed", ""]
    assert [outcome.value for outcome in outcomes] == [(128, 128, 3), None, (128, 128, 3)]


def make_nothing() -> Any:
    raise OSError("no memory")


@pytest.mark.processes
def test_processes_that_can_not_begin_are_an_error_and_no_sample_is_blamed():
    with pytest.raises(RuntimeError, match="could not begin: OSError: no memory"):
        list(run_isolated(make_nothing, [1, 2], 1, 60))


@pytest.mark.processes
def test_check_of_tars_and_records(tmp_path, capsys):
    data = tmp_path / "data"
    data.mkdir()
    good, cut = image_file(1), image_file(2)
    parts = {"a.jpg": good, "a.cls": b"0", "b.jpg": cut[:-200], "b.cls": b"1", "c.jpg": image_file(3), "c.cls": b"2"}
    tar = write_tar(data / "train.tar", parts)
    write_tar(data / "damaged.tar", parts)
    truncate_file(data / "damaged.tar")
    tfrecord_case(data / "tf")
    mxnet_case(data / "mx")
    report = tmp_path / "report.jsonl"
    said = as_json(capsys, "check", data, "--jobs", 1, "--report", report, "--slow", "1e9", code=1)
    found = {os.path.relpath(one["path"], data): one["findings"] for one in said["findings"]}
    faults = {name: kinds for name, kinds in found.items() if kinds not in (["duplicate"], ["pillow"])}
    assert faults == {"damaged.tar": ["refused"], "train.tar#b": ["bad"]}
    records = [name for name in read_report(report) if ".rec#" in name or ".tfrecord#" in name]
    assert said["summary"]["samples"] == 3 + 1 + len(records) and len(records) > 20

    whole, clean = (td.TarDataset(tar, ["jpg", "cls"], exclude=exclude) for exclude in (None, report))
    assert [int(clean[i][1]) for i in range(len(clean))] == [0, 2] and clean.path(1) == f"{tar}#c"
    assert clean.fingerprint() != whole.fingerprint()
    for images, _ in td.DataLoader(clean, 2, device="cpu"):
        assert len(images) == 2
    assert td.TarDataset(tar, ["jpg", "cls"], exclude=[1]).fingerprint() == clean.fingerprint()


@pytest.mark.processes
def test_a_real_run(tmp_path):
    """Started as users do: one good file, named in a list."""
    (tmp_path / "a b.jpg").write_bytes(image_file(1))
    (tmp_path / "files.txt").write_text("# the files\na b.jpg 3\n")
    command = [sys.executable, "-m", "torchdali", "check", str(tmp_path / "files.txt"), "--jobs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "1/1" in done.stderr and "good       1" in done.stdout


@pytest.mark.processes
def test_help_waits_for_no_heavy_import():
    code = (
        "import sys, torchdali.commands.main as c; assert c.main(['bench', '--help']) == 0;"
        "heavy = {'torch', 'nvidia', 'torchvision', 'matplotlib', 'PIL'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=280, check=True)


def test_the_script_is_the_frame():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"torchdali": "torchdali.commands.main:main"}


def test_duplicates_and_slow_samples():
    entries = [Entry(str(i), "", "good", "dali", seconds=0.01, digest=str(i)) for i in range(9)]
    entries += [Entry("late", "", "good", "pillow", seconds=0.11, digest="3"), Entry("lost", "", "refused")]
    found = {finding.entry.path: (finding.kinds, finding.same_as) for finding in findings.find(entries, slow=10)}
    assert found == {"late": (("pillow", "duplicate", "slow"), "3"), "lost": (("refused",), "")}


def test_names_do_nothing_to_the_terminal(capsys):
    terminal.say(terminal.one_line("  a\x1b[31m\n\u202eb\udcff.jpg") + "\nmore")
    assert capsys.readouterr().out == "  a\\x1b[31m\\n\\u202eb\\udcff.jpg\nmore\n"


def test_what_is_collected(tmp_path):
    make_image_folder(tmp_path / "folder", classes=1, per_class=2)
    (tmp_path / "folder" / "again").symlink_to(tmp_path / "folder")
    first = tmp_path / "folder" / "class_0" / "0000.jpg"
    listed = tmp_path / "some.lst"
    listed.write_text(f"folder/class_0/0001.jpg 1\n\nfolder/missing.jpg 2\n{first} 0\n")
    samples = collect([str(tmp_path / "folder"), str(listed), str(tmp_path / "folder" / "*" / "*1.jpg")])
    assert [os.path.relpath(sample.path, tmp_path / "folder") for sample in samples] == [
        "class_0/0000.jpg", "class_0/0001.jpg", "missing.jpg",
    ]  # fmt: skip
    assert [sample.fault for sample in samples][:2] == ["", ""] and "No such file" in samples[2].fault
    # Two image parts of a sample are one sample; parts that are no images do not count.
    tar = write_tar(tmp_path / "x.tar", {"a.jpg": b"1", "a.seg.png": b"22", "a.cls": b"0", "b.txt": b"no image"})
    (sample,) = collect([str(tar)])
    assert sample.path == f"{tar}#a" and [part.size for part in sample.parts] == [1, 2]


# exclude=


def test_exclude_by_list(folder):
    whole = td.ImageFolder(folder)
    some = td.ImageFolder(folder, exclude=[0, -1, whole.paths[5]])
    assert some.paths == [path for i, path in enumerate(whole.paths) if i not in (0, 5, 21)]
    arrays = np.arange(44).reshape(22, 2)
    some = td.FileDataset(whole.paths, arrays, exclude=np.array([3]))
    assert some[3][1].tolist() == [8, 9] and len(some) == 21
    assert td.FileDataset(["missing.jpg", whole.paths[0]], exclude=[0]).paths == whole.paths[:1]
    assert td.FileDataset(whole.paths, exclude=[]).fingerprint() == td.FileDataset(whole.paths).fingerprint()


def test_wrong_exclude(folder, tmp_path):
    paths = td.ImageFolder(folder).paths
    other = tmp_path / "report.jsonl"
    other.write_text(Entry("/elsewhere/a.jpg", "", "bad").as_line())
    (tmp_path / "notes").write_text("no report")
    for exclude, error, match in (
        ([22], IndexError, "index 22 in exclude is outside a dataset of 22 samples"),
        ([paths[0] + "x"], ValueError, "which the dataset doesn't have .did you mean"),
        ([None], TypeError, "exclude must hold paths and indices, got None"),
        ([True], TypeError, "exclude must hold paths and indices, got True"),
        (3, TypeError, "exclude must be a report's file, or a list"),
        (range(22), ValueError, "exclude leaves none of 22 samples"),
        (other, ValueError, "a report on this dataset, got .*Make the report where the files are now"),
        (tmp_path / "notes", ValueError, "a report of `torchdali check` was expected, got .*, whose line 1 is none"),
        (tmp_path / "none", FileNotFoundError, "none"),
    ):
        for make in (partial(td.ImageFolder, folder), partial(td.FileDataset, paths)):
            with pytest.raises(error, match=match):
                make(exclude=exclude)


# inspect


def state_after(dataset: Any, batches: int, **options: Any) -> dict[str, Any]:
    loader = td.DataLoader(dataset, 4, device="cpu", seed=3, **options)
    if batches:
        for _, _ in zip(range(batches), loader):
            pass
    return loader.state_dict()


def test_inspect_says_where_a_state_stands(folder, tmp_path, capsys):
    state = state_after(td.ImageFolder(folder), 3, shuffle=True)
    file = tmp_path / "state.json"
    file.write_text(json.dumps(state))
    assert main(["inspect", str(file), "--data", str(folder)]) == 0
    out = capsys.readouterr().out
    for sentence in (
        "at the top:",
        "epoch 0 (the first is 0): 12 of 22 samples (54.5%) over all ranks",
        "not finished: the loader goes on with sample 12 of the epoch's order",
        "order 'shuffle', seed 3",
        f"dataset {state['dataset']!r}",
        f"version {VERSION}: this torchdali reads it",
        f"fits {folder} as ImageFolder",
    ):
        assert sentence in out
    file.write_text(json.dumps(state | {"epoch": 4, "cycle": 2, "samples_seen": 22, "finished": True}))
    assert main(["inspect", str(file)]) == 0
    out = capsys.readouterr().out
    assert "epoch 4 (the first is 0), its repetition 2: 22 of 22" in out and "finished: the loader goes on with" in out
    file.write_text(json.dumps(state_after(td.ImageFolder(folder), 0)))
    assert main(["inspect", str(file)]) == 0 and "not begun" in capsys.readouterr().out


def test_inspect_finds_states_anywhere(folder, tmp_path, capsys):
    state = state_after(td.ImageFolder(folder), 1)
    lightning = {
        "state_dict": {"weight": torch.ones(1000)},
        "loops": {"fit_loop": {"state_dict": {"combined_loader": [state]}}},
        "DataModule": {"train": dict(state)},
        "epoch": 1,
    }
    torch.save(lightning, tmp_path / "last.ckpt")
    said = as_json(capsys, "inspect", tmp_path / "last.ckpt")
    places = ['["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]', '["DataModule"]["train"]']
    assert [one["place"] for one in said["states"]] == places
    assert all(one["state"] == state and not one["problems"] for one in said["states"])
    torch.save({"model": torch.nn.Linear(2, 2), "loader": state}, tmp_path / "objects.pt")
    assert main(["inspect", str(tmp_path / "objects.pt")]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "torch.nn.modules.linear.Linear" in err and "write --trust" in err
    (one,) = as_json(capsys, "inspect", tmp_path / "objects.pt", "--trust")["states"]
    assert one["place"] == '["loader"]'


def test_inspect_compares_with_data(folder, own_folder, tmp_path, capsys):
    def fits(dataset: Any, *data: Any, code: int = 0) -> dict[str, Any]:
        (tmp_path / "state.json").write_text(json.dumps(state_after(dataset, 0)))
        (one,) = as_json(capsys, "inspect", tmp_path / "state.json", "--data", *data, code=code)["states"]
        assert one["data"]["fits"] is (code == 0)
        return one["data"]

    whole = td.ImageFolder(own_folder)
    assert fits(whole, folder)["as"] == "ImageFolder"  # the folder may move
    os.rename(whole.paths[0], own_folder / "class_0" / "other.jpg")
    assert "as many samples, but with other names" in fits(whole, own_folder, code=1)["differences"][-1]
    os.remove(own_folder / "class_0" / "other.jpg")
    assert fits(whole, own_folder, code=1)["differences"][0] == "num_samples: the state has 22, the data 21"

    report = tmp_path / "report.jsonl"
    report.write_text(
        "".join(Entry(path, "", "bad" if i == 3 else "good").as_line() for i, path in enumerate(whole.paths))
    )
    assert fits(td.ImageFolder(folder, exclude=[3]), folder, code=1)
    rest = td.ImageFolder(own_folder)
    without = td.ImageFolder(own_folder, exclude=[str(whole.paths[3])])
    assert len(without) == len(rest) - 1
    assert fits(without, own_folder, "--exclude", report)

    paths, labels = td.ImageFolder(folder).paths, td.ImageFolder(folder).targets
    listed = tmp_path / "list.txt"
    listed.write_text("".join(f"{path} {label}\n" for path, label in zip(paths, labels)))
    assert fits(td.FileDataset(paths, labels), listed)["as"] == "FileDataset with labels"
    assert fits(td.FileDataset(paths), listed)["as"] == "FileDataset"
    assert fits(td.FileDataset(paths[:11]), folder / "class_0")["as"] == "FileDataset"

    (tmp_path / "tars").mkdir()
    parts = {
        f"{i}.{ext}": data for i in range(3) for ext, data in (("jpg", image_file(i)), ("cls", b"1"), ("txt", b"t"))
    }
    tar = write_tar(tmp_path / "tars" / "a.tar", parts)
    assert fits(td.TarDataset(tar, ["jpg", "cls"]), tar)["as"] == "TarDataset with ext=['jpg', 'cls']"
    assert fits(td.TarDataset(tar, ["jpg"]), tmp_path / "tars")["as"] == "TarDataset with ext=['jpg']"
    assert fits(td.TarDataset(tar, ["txt", "jpg"]), tar, "--ext", "txt,jpg")
    assert fits(td.TarDataset(tar, ["txt", "jpg"]), tar, code=1)

    mxnet_case(tmp_path / "mx")
    assert fits(td.RecordIODataset(tmp_path / "mx" / "data.rec"), tmp_path / "mx" / "data.rec")
    tfrecord_case(tmp_path / "tf")
    files = sorted((tmp_path / "tf").glob("*.tfrecord"))
    dataset = td.TFRecordDataset(files, {"image/encoded": "bytes"})
    assert fits(dataset, tmp_path / "tf")["as"] == "TFRecordDataset"


def test_states_that_are_not_read(folder, tmp_path, capsys):
    state = state_after(td.ImageFolder(folder), 1)
    assert not problems(state)
    assert problems(state | {"version": 7}) == [f"version: this torchdali reads {VERSION}, got 7"]
    assert problems(state | {"samples_seen": 23}) == ["samples_seen: expected an integer in [0, 22], got 23"]
    assert problems({key: value for key, value in state.items() if key != "seed"}) == [
        "seed: int was expected, got 'nothing'"
    ]
    assert problems(state | {"rank": 3}) == [f"'rank': not a key of version {VERSION}"]
    (tmp_path / "state.json").write_text(json.dumps(state | {"version": 7}))
    assert main(["inspect", str(tmp_path / "state.json")]) == 1
    assert f"this torchdali does NOT read it:\n    version: this torchdali reads {VERSION}" in capsys.readouterr().out
    # An older one, whose position means the same: that is said, and how to go on.
    (tmp_path / "state.json").write_text(json.dumps(state | {"version": 1}))
    assert main(["inspect", str(tmp_path / "state.json")]) == 1
    out = capsys.readouterr().out
    assert "epoch 0 (the first is 0): 4 of 22 samples" in out and "load_state_dict(state, strict=False)" in out


def test_the_state_of_an_iterable(tmp_path, capsys):
    class Numbers(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(10))

    loader = td.DataLoader(Numbers(), 4, device="cpu")
    next(iter(loader))
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    assert main(["inspect", str(tmp_path / "state.json")]) == 0
    assert "4 samples, of a number that is not known" in capsys.readouterr().out


# index


@pytest.mark.processes
def test_index(tmp_path, capsys, monkeypatch):
    data, indexes = tmp_path / "data", tmp_path / "indexes"
    data.mkdir()
    tar = write_tar(data / "a.tar", {f"{i}.jpg": image_file(i) for i in range(5)})
    tfrecord_case(data / "tf")
    mxnet_case(data / "mx")
    said = as_json(capsys, "index", data, "--index-dir", indexes, "--jobs", 2)
    found = {os.path.relpath(one["path"], data): one["number"] for one in said["files"]}
    assert found["a.tar"] == 5 and found["mx/data.rec"] == len(td.RecordIODataset(data / "mx" / "data.rec"))
    assert len(found) == len(list(indexes.iterdir())) == 4
    with monkeypatch.context() as patched:  # the dataset finds it, and does not read the tar's headers
        patched.setattr("torchdali.formats.webdataset.scan", None)
        assert len(td.TarDataset(tar, ["jpg"], index_dir=indexes)) == 5
    garble_file(data / "tf" / "0.tfrecord")
    assert main(["index", str(tar), str(data / "tf" / "*.tfrecord"), "--index-dir", str(indexes), "--jobs", "1"]) == 1
    out, err = capsys.readouterr()
    assert "a.tar" in out and "5  samples" in out and "1.tfrecord" in out
    (error,) = [line for line in err.splitlines() if line.startswith("torchdali: ")]
    assert str(data / "tf" / "0.tfrecord") in error
    (tmp_path / "file").touch()
    assert main(["index", str(tar), "--index-dir", str(tmp_path / "file" / "below"), "--jobs", "1"]) == 1
    assert "indexes can't be kept in" in capsys.readouterr().err


# Wrong input, and help


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            "chekc x",
            "one of preview, bench, check, index, inspect, pack was expected, got 'chekc' (did you mean 'check'?)",
        ),
        ("--hlep", "a command was expected, got '--hlep' (did you mean '--help'?)"),
        ("help chekc", "got 'chekc' (did you mean 'check'?)"),
        ("check {folder} --jbos 2", "check knows no argument '--jbos' (did you mean '--jobs'?)"),
        ("check {folder} --jobs 0", "an integer of at least 1 was expected, got '0'"),
        ("check {folder} --slow x", "a number above 0 was expected, got 'x'"),
        ("check {folder} --max-pixels many", "an integer of at least 1 was expected, got 'many'"),
        ("check", "the following arguments are required: PATH"),
        ("check {folder}x", "folderx does not exist (did you mean "),
        ("check {tmp}/*.jpg", "no file matches"),
        ("check {tmp}", "has no images"),
        ("check {tmp}/notes.md", "notes.md"),
        ("check {tmp}/list.txt", "none of its 1 files exists"),
        ("check {folder} --report {tmp}/notes.md", "a report of `torchdali check` was expected"),
        ("check {folder} --report {tmp}/none/report", "No such file or directory"),
        ("check {folder} --csv {tmp}", "Is a directory"),
        ("index {folder}", "tars (.tar), TFRecords"),
        ("index {tmp}/none.tar", "none.tar does not exist"),
        ("inspect {tmp}/none.json", "none.json does not exist"),
        ("inspect {tmp}", "a file was expected, got the folder {tmp}: name a file in it, such as {tmp}/bad.json"),
        ("inspect {tmp}/notes.md", "notes.md is no checkpoint: a .json file, or one of torch.save was expected"),
        ("inspect {tmp}/bad.json", "bad.json is no checkpoint: a .json file, or one of torch.save was expected"),
        ("inspect {tmp}/deep.json", "deep.json is no checkpoint"),
        ("inspect {tmp}/empty.pt", "empty.pt is no checkpoint"),
        ("inspect {tmp}/cut.pt", "cut.pt is no checkpoint"),
        ("inspect {tmp}/other.json", "holds no state of a loader: a dict with epoch, samples_seen, version"),
        ("inspect {tmp}/state.json --data {tmp}/none", "none does not exist"),
        ("inspect {tmp}/state.json --data {tmp}/emptyfolder", "--data: "),
        ("inspect {tmp}/state.json --data {folder} --exclude {tmp}/notes.md", "a report of `torchdali check`"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_sentence(argv, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torchdali.commands.isolated.start", None)  # found before any process is started
    folder = make_image_folder(tmp_path / "data" / "folder", classes=1, per_class=1)
    tmp = tmp_path / "tmp"
    (tmp / "emptyfolder").mkdir(parents=True)
    (tmp / "notes.md").write_text("no report\n")
    (tmp / "list.txt").write_text("missing.jpg\n")
    (tmp / "bad.json").write_text('{"epoch": ')
    (tmp / "deep.json").write_text("[" * 100_000)
    (tmp / "empty.pt").touch()
    torch.save({"weight": torch.ones(9)}, tmp / "cut.pt")
    truncate_file(tmp / "cut.pt")
    (tmp / "other.json").write_text('{"epoch": 1}')
    (tmp / "state.json").write_text('{"version": 1, "epoch": 0, "samples_seen": 0}')
    assert main(argv.format(folder=folder, tmp=tmp).split()) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("torchdali: ") and err.count("\n") == 1, err
    assert said.format(tmp=tmp) in err


def test_help_fits_a_screen(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24 and all(len(line) <= 80 for line in out.splitlines())
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        assert name in out and command.SUMMARY in out
        assert main([name, "--help"]) == 0
        own = capsys.readouterr().out.splitlines()
        assert len(own) <= 40 and all(len(line) <= 80 for line in own) and any("--json" in line for line in own)
        assert main(["help", name]) == 0 and capsys.readouterr().out.splitlines() == own
    assert main(["help"]) == 0 and capsys.readouterr().out == out
    assert main([]) == 2 and "usage: torchdali" in capsys.readouterr().err
    assert main(["--version"]) == 0 and td.__version__ in capsys.readouterr().out


def test_progress_is_tqdm_s_bar_or_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(stream: io.StringIO, done: int = 0) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        with progress_bar("check", 40, "samples", done=done) as bar:
            for _ in range(40 - done):
                bar.update()
        return stream.getvalue()

    assert "40/40" in shown(Terminal()) and "check: 100%" in shown(Terminal())
    lines = shown(io.StringIO()).split("\r")
    assert len(lines) < 5 and "40/40" in lines[-1]  # a file of logs gets few of them
    monkeypatch.setitem(sys.modules, "tqdm", None)  # not installed
    lines = shown(Terminal()).splitlines()
    assert len(lines) == 10 and lines[0].startswith("check: 4 of 40 (10 %)")
    assert shown(io.StringIO(), done=36).splitlines()[0].startswith("check: 40 of 40 (100 %)")


def test_ctrl_c_is_no_traceback(folder, capsys, monkeypatch):
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(isolated, "run_isolated", interrupted)
    assert main(["check", str(folder)]) == 130
    err = capsys.readouterr().err
    assert err.endswith("\ntorchdali: interrupted\n") and "Traceback" not in err


MOMENTS = ("argparse", "torchdali.commands.frame", "numpy", "torch", "torchdali.loader", "end")
INTERRUPTED = """
import atexit, os, signal, sys
from torchdali.commands.main import main

moment, *sys.argv[1:] = sys.argv[1:]

def press():
    os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(name, path, target=None):
        if name == moment:
            press()

sys.meta_path.insert(0, Finder)
if moment == "end":
    atexit.register(press)
sys.exit(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_time(moment, folder):
    """While anything is imported it is caught, and while Python ends it ends the process at once."""
    arguments = ["--help"] if moment == "end" else ["bench", str(folder)]
    command = [sys.executable, "-c", INTERRUPTED, moment, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    ended = (-signal.SIGINT, "") if moment == "end" else (130, "torchdali: interrupted\n")
    assert (done.returncode, done.stderr) == ended, done.stderr


def test_peers_by_name():
    assert sorted(peers.PEERS) == sorted(bench.PEERS)


# Configs of recipes

RECIPE = """
import torchdali as td
from torch.utils.data import ConcatDataset, Subset

def make_loader(split, data, seed):
    tars = td.TarDataset(f"{data['root']}/*.tar", ["jpg"], fields=["image"], index_dir=f"{data['root']}/indexes")
    photos = td.FileDataset([f"{data['root']}/{n}.jpg" for n in range(3)])
    train = ConcatDataset([Subset(photos, [2, 0]), Subset(tars, [0, 3])])
    return td.DataLoader(train if split == "train" else photos, 2, shuffle=True, seed=seed)

class Train:
    def __init__(self, seed: int = 0): self.seed = seed

def main(data: dict, train: Train): ...
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config whose training reads two of three files and two samples of two tars, and whose validation all files."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        (data / f"{number}.jpg").write_bytes(image_file(number))
    for number in range(2):
        write_tar(data / f"{number}.tar", {f"{i}.jpg": image_file(i) for i in range(2)})
    path = tmp_path / "configs" / "mine" / "small.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"data: {{root: {data}}}\ntrain: {{seed: 3}}\n")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text(RECIPE)
    return path


def test_check_looks_at_the_samples_of_a_config_and_no_others(config, tmp_path, capsys, monkeypatch):
    asked: list[Sample] = []

    def collected(make: Any, items: list[Sample], jobs: int, timeout: float) -> Any:
        asked[:] = items
        return iter([Outcome(number, Entry(one.path, one.version, "good")) for number, one in enumerate(items)])

    monkeypatch.setattr(isolated, "run_isolated", collected)
    data = tmp_path / "data"
    assert as_json(capsys, "check", config)["summary"]["samples"] == 4
    expected = [str(data / one) for one in ("2.jpg", "0.jpg", "0.tar#0", "1.tar#1")]
    assert [sample.path for sample in asked] == expected
    as_json(capsys, "check", config, "--split", "val", data / "1.tar")
    assert [Path(sample.path).name for sample in asked] == ["0.jpg", "1.jpg", "2.jpg", "1.tar#0", "1.tar#1"]
    other = shutil.copytree(data, tmp_path / "other")
    as_json(capsys, "check", config, f"--data.root={other}")
    assert {Path(sample.path.partition("#")[0]).parent for sample in asked} == {other}


def test_index_makes_the_indexes_of_a_config(config, tmp_path, capsys):
    said = as_json(capsys, "index", config)["files"]
    assert [(Path(one["path"]).name, one["kind"], one["number"]) for one in said] == [
        ("0.tar", "tar", 1),
        ("1.tar", "tar", 1),
    ]
    assert len(list((tmp_path / "data" / "indexes").iterdir())) == 2  # where the recipe has them


def test_inspect_asks_the_loader_of_a_config(config, tmp_path, capsys):
    from torchdali.commands.recipe import loader_of

    state = tmp_path / "state.json"
    with loader_of(str(config)) as loader:
        state.write_text(json.dumps({"loader": loader.state_dict()}))
    (one,) = as_json(capsys, "inspect", state, "--data", config)["states"]
    assert one["data"] == {"fits": True, "as": "ConcatDataset", "differences": []}
    (one,) = as_json(capsys, "inspect", state, "--data", config, "--train.seed=4", code=1)["states"]
    assert not one["data"]["fits"] and one["data"]["differences"] == ["seed: expected 4, got 3"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("check {config} --split trian", "argument --split: invalid choice: 'trian' (choose from "),
        ("check {config} --train.sed=4", "train"),
        ("check {config}x", "small.yamlx does not exist (did you mean "),
        ("check {tmp} --split val", "--split is for a recipe's config, such as configs/NAME/some.yaml, got "),
        ("check {config} --index-dir x", "--index-dir is for data, and a config says its own: write the recipe's"),
        ("index {config} --split val", "a dataset of tars, records or videos was expected, got FileDataset: "),
        ("index {config} --jbos 2", "index knows no argument '--jbos' (did you mean '--jobs'?)"),
        ("inspect {tmp}/s.json --data {config} --ext jpg", "--ext is for data"),
        ("inspect {tmp}/s.json --recipe x.py", "--recipe is for a recipe's config"),
        ("inspect {tmp}/s.json --data {config} --data {tmp}", "--data must be one config, or data"),
        ("preview {config} --out {tmp}/a.png --shuffle", "--shuffle is for data"),
        ("preview {tmp} --out {tmp}/a.png --split val", "--split is for a recipe's config"),
        ("bench {tmp} --recipe x.py", "--recipe is for a recipe's config"),
        ("preview {tmp}/configs/bad/a.yaml --out {tmp}/a.png", "recipes/bad.py, line 4: NameError: name 'rooot'"),
        ("check {tmp}/configs/torn/a.yaml", "recipes/torn.py, line 2: SyntaxError: "),
        ("pack {config} {config}", "path must be a folder, got the file"),
        ("pack {tmp} {tmp}/pack --split val", "--split is for a recipe's config"),
    ],
)  # fmt: skip
def test_arguments_of_a_config_and_of_data(argv, said, config, tmp_path, capsys):
    (tmp_path / "s.json").write_text('{"version": 1, "epoch": 0, "samples_seen": 0}')
    recipes = {
        "bad": "def main(data: dict): ...\n\ndef make_loader(split, data):\n    rooot\n",
        "torn": "x = 1\ndef f(:\n",
    }
    for name, script in recipes.items():
        (config.parent.parent / name).mkdir()
        (config.parent.parent / name / "a.yaml").write_text("data: {root: x}\n")
        (tmp_path / "recipes" / f"{name}.py").write_text(script)
    assert main(argv.format(config=config, tmp=tmp_path).split()) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("torchdali: ") and err.count("\n") == 1 and said in err, err

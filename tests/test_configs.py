"""The parsers of recipes say what may have been meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonargparse
import pytest

import torchdali as td
from torchdali.checks import nearest, nearest_path
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class Data:
    root: str
    batch_size: int = 8
    engine: str = "auto"


def build(data: Data, dataset: td.MapDataset | None = None, epochs: int = 1) -> Any:
    return data, dataset, epochs


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit, match="2"):
        jsonargparse.auto_cli(build, args=list(arguments), parser_class=ArgumentParser)
    return capsys.readouterr().err


def test_what_is_right_is_built() -> None:
    found = jsonargparse.auto_cli(
        build, args=["--data.root=x", "--data.batch_size=64", "--epochs=3"], parser_class=ArgumentParser
    )
    assert found == (Data("x", 64), None, 3)


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--data.batchsize=3", "data.batch_size"),
        ("--epoch=3", "epochs"),
        ("--data.engin", "data.engine"),
    ],
)
def test_an_unknown_option(capsys: pytest.CaptureFixture[str], option: str, meant: str) -> None:
    assert f"{option} (did you mean {meant!r}?)" in error_of(capsys, "--data.root=x", option)


def test_several_unknown_options(capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "--data.root=x", "--data.batchsize=3", "--epoch=3")
    assert "--data.batchsize=3 (did you mean 'data.batch_size'?) --epoch=3 (did you mean 'epochs'?)" in said


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("data: {root: x, batchsize: 3}", "'batchsize' (did you mean 'data.batch_size'?)"),
        ("dat: {root: x}", "'dat.root' is not accepted (did you mean 'data.root'?)"),
        ("data: {root: x}\nepoch: 2", "'epoch' is not accepted (did you mean 'epochs'?)"),
        ("data: {root: x, zzz: 3}", "does not accept option 'zzz'\n"),  # nothing is near
    ],
)
def test_an_unknown_key_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, meant: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    assert meant in error_of(capsys, "--config", str(tmp_path / "config.yaml"))


def test_a_wrong_type_is_named_with_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "--data.root=x", "--data.batch_size=many")
    assert '"data.batch_size"' in said and "many" in said and "int" in said


def test_a_missing_config(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text("data: {root: x}")
    said = error_of(capsys, "--config", str(tmp_path / "digit.yaml"))
    assert f"did you mean {str(tmp_path / 'digits.yaml')!r}?" in said


def test_an_unknown_class_and_an_unknown_option_of_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    said = error_of(capsys, "--data.root=x", "--dataset=torchdali.ImageFoldr")
    assert "no attribute 'ImageFoldr' (did you mean 'ImageFolder'?)" in said
    said = error_of(capsys, "--data.root=x", "--dataset=torchdali.ImageFolder", "--dataset.rot=x")
    assert "Option 'rot' is not accepted (did you mean 'root'?)" in said


def test_nearest() -> None:
    assert nearest("batchsize", ["batch_size", "seed"]) == " (did you mean 'batch_size'?)"
    assert nearest("zzz", ["batch_size", "seed"]) == "" == nearest("x", [])


def test_nearest_path(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "digits" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert nearest_path("data/digit/train") == " (did you mean 'data/digits/train'?)"
    assert nearest_path("data/digit/val") == " (did you mean 'data/digits'?)"  # there is no val in it
    assert nearest_path("dta") == " (did you mean 'data'?)"
    assert nearest_path(tmp_path / "data" / "digits" / "trian").endswith("digits/train'?)")
    assert nearest_path("nothing/like/it") == "" == nearest_path("/zzzzzz/x")


def test_a_missing_folder_of_a_dataset_and_of_a_reader(folder: Path) -> None:
    wrong = f"{folder}_"
    for make in (td.ImageFolder, lambda root: td.readers.File(file_root=root), lambda root: td.FileDataset([root])):
        with pytest.raises(FileNotFoundError, match=rf"did you mean '{folder}'\?"):
            make(wrong)

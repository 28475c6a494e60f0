"""The H.264 and FITS files that this repository carries, so that a GPU's readers are tried without PyAV and astropy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali.readers.fits import Fits
from torchdali.readers.video import Video, VideoResize
from torchdali.testing import assert_resumes_exactly

FILES = Path(__file__).parent / "data/gpu"
LENGTH = 4
FRAMES = [12, 13]
STARTS = [(film, first) for film in (0, 1) for first in (0, 4, 8)]

gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def reds(first: int, count: int) -> np.ndarray:
    """The red of frames, which says their numbers."""
    return 40.0 + 12 * np.arange(first, first + count)


def table(i: int) -> np.ndarray:
    """The image of a FITS file, uint8 [6, 8 + i]."""
    return (np.arange(6 * (8 + i)) * 3 % 256).astype(np.uint8).reshape(6, 8 + i)


def test_they_hold_what_a_gpu_shall_find():
    import av
    from astropy.io import fits

    for i, count in enumerate(FRAMES):
        with av.open(os.fspath(FILES / f"{i}.mp4")) as film:
            assert film.streams.video[0].codec_context.name == "h264"
            frames = np.stack([frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)])
        assert frames.shape == (count, 192, 256, 3)
        assert np.abs(frames[..., 0].mean((1, 2)) - reds(0, count)).max() < 6
        assert np.array_equal(fits.getdata(FILES / f"{i}.fits", 1), table(i))


@pytest.mark.parametrize("cls", [pytest.param(Video, marks=gpu), pytest.param(VideoResize, marks=gpu)])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_films_on_a_gpu(cls, prefetch):
    size = {"size": [96, 128]} if cls is VideoResize else {}

    def loader() -> td.DataLoader:
        reader = cls(filenames=sorted(FILES.glob("*.mp4")), labels=[0, 1], sequence_length=LENGTH, shuffle="window",
                     initial_fill=4, enable_frame_num=True, **size)  # fmt: skip
        return td.DataLoader(reader, batch_size=2, device="cuda", seed=7, output="dict", prefetch_factor=prefetch)

    found = []
    for batch in loader():
        for clip, film, first in zip(batch["video"], batch["label"], batch["frame"], strict=True):
            assert clip.device.type == "cuda" and clip.shape[0] == LENGTH and clip.shape[-1] == 3
            means = clip[..., 0].float().mean((1, 2)).cpu().numpy()
            assert np.abs(means - reds(int(first), LENGTH)).max() < 8
            found.append((int(film), int(first)))
    assert sorted(found) == STARTS
    assert_resumes_exactly(loader)


@pytest.mark.parametrize("case", [pytest.param("gpu", marks=gpu)])
def test_tables_on_a_gpu(case):
    samples = [array for (array,) in td.DataLoader(Fits(file_root=FILES), batch_size=1, device="cuda")]
    for i, array in enumerate(samples):
        data = array.data if isinstance(array, td.Padded) else array
        assert np.array_equal(data[0].cpu().numpy(), table(i))
    assert_resumes_exactly(lambda: td.DataLoader(Fits(file_root=FILES), batch_size=2, device="cuda"))

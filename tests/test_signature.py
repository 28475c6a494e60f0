"""The kind and form of a value, and the error for a value that differs from its field's others."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

from torchdali.errors import FieldTypeError, TorchDaliError
from torchdali.signature import Form, check_arrays, is_number, kind_of

PICTURE = np.zeros((2, 3, 3), np.uint8)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("number", [True, 1, 1.5, np.int8(1), np.bool_(True), np.array(2.0), torch.tensor(1)]),
        ("image", [PICTURE, PICTURE[..., :1]]),
        ("array", [PICTURE[0], PICTURE[..., :2], PICTURE.astype(np.int64), np.zeros(2), np.zeros((0, 4), bool)]),
        ("object", ["text", b"bytes", None, [1], 1j, np.complex64(1), np.array("text"), np.zeros(2, complex)]),
    ],
)
def test_the_kind_is_seen_from_type_and_shape(kind, values):
    assert [kind_of(value) for value in values] == [kind] * len(values)
    assert [is_number(value) for value in values] == [kind == "number"] * len(values)


ONE, TWO = np.zeros(3), np.zeros((3, 3))  # dimensions
FAULTS: list[tuple[str, Any, Any, str, str]] = [
    ("array", TWO.astype("f4"), TWO, "float32 with 2 dimensions", "float64 with 2 dimensions"),
    ("array", ONE, TWO, "float64 with 1 dimension", "float64 with 2 dimensions"),
    ("array", ONE, torch.zeros(3), "float64 with 1 dimension", "float32 with 1 dimension"),
    ("array", ONE, PICTURE, "float64 with 1 dimension", "uint8 with 3 dimensions"),
    ("array", ONE, 1.5, "float64 with 1 dimension", "a number of float64"),
    ("array", ONE, "text", "float64 with 1 dimension", "'text'"),
    ("image", PICTURE, PICTURE[..., :1], "an image with 3 channels", "an image with 1 channel"),
    ("image", PICTURE, PICTURE[0], "an image with 3 channels", "uint8 with 2 dimensions"),
    ("number", 1, 1.5, "a number of int64", "a number of float64"),
    ("number", 1, "text", "a number of int64", "'text'"),
]


@pytest.mark.parametrize(("kind", "first", "other", "expected", "got"), FAULTS)
def test_another_form_is_one_error(kind, first, other, expected, got):
    form = Form.of(kind, first)
    form.check("x", first)
    with pytest.raises(FieldTypeError) as caught:
        form.check("x", other)
    assert re.fullmatch(
        f"'x' must be {expected}, as in the first sample, got {got}: (convert|give) .*", f"{caught.value}"
    )
    with pytest.raises(FieldTypeError, match=f"must be {expected}, as in a.npy, got {got} in b.npy: ") as caught:
        form.check("x", other, "a.npy", "b.npy")
    error = caught.value
    assert isinstance(error, TypeError) and isinstance(error, TorchDaliError)
    assert (error.field, error.expected, error.got) == ("x", expected, got)
    assert (error.first, error.sample) == ("a.npy", "b.npy")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is FieldTypeError and str(copied) == str(error)
    assert pickle.loads(pickle.dumps(form)) == form


def test_numbers_of_any_dtype():
    form = Form("number")
    form.check("x", 1)
    form.check("x", np.float32(1))
    with pytest.raises(FieldTypeError, match="'x' must be a number, as in the first sample, got 'text'"):
        form.check("x", "text")


def test_shapes_count_where_they_are_fixed():
    any_shape, fixed = (Form.of("array", np.zeros((2, 3)), fixed_shape) for fixed_shape in (False, True))
    any_shape.check("x", np.zeros((4, 5)))
    with pytest.raises(FieldTypeError, match=r"'x' must be float64 \[2, 3\], as in .*, got float64 \[4, 5\]"):
        fixed.check("x", np.zeros((4, 5)))


def test_a_column_of_arrays_has_one_form():
    check_arrays("x", [])
    check_arrays("x", np.zeros((4, 2)))
    check_arrays("x", [np.zeros(2), np.zeros(5)], [7, 9])
    check_arrays("x", [torch.zeros(2), torch.zeros(5)])
    with pytest.raises(
        FieldTypeError, match=r"with 1 dimension, as in sample 0, got int64 with 1 dimension in sample 2"
    ):
        check_arrays("x", [np.zeros(2), np.zeros(3), np.zeros(2, np.int64)])
    with pytest.raises(FieldTypeError, match=r"as in sample 70, got float64 with 2 dimensions in sample 3"):
        check_arrays("x", [np.zeros(2), np.zeros((2, 2))], [70, 3])

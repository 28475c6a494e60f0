"""JSON that DALI's parser takes too."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_SUSPECT = re.compile(r"\\u[dD][89a-fA-F]|[\d.][eE]\+?\d{3}|\d{309}")


def strict_json(text: str) -> Any:
    """Parse a JSON document that has nothing at which DALI's parser would end, though Python's takes it.

    Raises:
        ValueError: not JSON, NaN, a number above 1e308, or half a surrogate pair.
    """
    document = json.loads(text, parse_constant=_no_constant)
    if _SUSPECT.search(text):
        if re.search(r"\d{309}", text):
            raise ValueError("a number of so many digits is too large")
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")

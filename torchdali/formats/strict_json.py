"""Parses JSON that DALI's parser takes too."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_SUSPECT = re.compile(r"\\u[dD][89a-fA-F]|[\d.][eE]\+?\d{3}|\d{309}")


def plain_json(text: str) -> Any:
    """Parse a JSON document.

    Raises:
        ValueError: it is not JSON, or holds NaN or Infinity, which Python's parser takes.
    """
    return json.loads(text, parse_constant=_no_constant)


def strict_json(text: str) -> Any:
    """Parse a JSON document, and refuse what Python's parser takes but DALI's would stop at.

    Raises:
        ValueError: it is not JSON, or holds NaN, a number above 1e308, or half a surrogate pair.
    """
    document = plain_json(text)
    if _SUSPECT.search(text):
        if re.search(r"\d{309}", text):
            raise ValueError("a number has too many digits")
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    return document


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")

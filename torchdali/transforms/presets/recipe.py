"""A recipe: a list of transforms."""

from __future__ import annotations

from ..base import Transform

Steps = list[Transform]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, in units of [0, 1]."""

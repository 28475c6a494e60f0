"""Readers that are experimental in DALI's dynamic mode."""

from .fits import Fits
from .video import ExperimentalVideo as Video

__all__ = ["Fits", "Video"]

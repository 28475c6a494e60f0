"""DALI's native readers as stateful iterable datasets; options have DALI's names."""

from .base import Reader
from .files import File

__all__ = ["File", "Reader"]

"""Pictures of what a network will see."""

from .figure import show

__all__ = ["show"]

"""Pictures of what a network will see."""

from .show import show

__all__ = ["show"]

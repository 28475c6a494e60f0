"""Sources that are Python code, run in worker processes: datasets of torch, callbacks, iterables."""

from .mapped import PythonDataset

__all__ = ["PythonDataset"]

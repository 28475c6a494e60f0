"""Sources that are Python code, run in worker processes: datasets of torch, callbacks, iterables."""

from .callback import BatchInfo, SampleInfo, SampleSource
from .iterable import IterableSource
from .mapped import PythonDataset
from .wrap import as_source

__all__ = ["BatchInfo", "IterableSource", "PythonDataset", "SampleInfo", "SampleSource", "as_source"]

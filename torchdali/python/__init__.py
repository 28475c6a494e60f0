"""Sources of Python code, which may run in worker processes: datasets of torch, callbacks, iterables."""

from .callback import SampleSource
from .callback_job import BatchInfo, SampleInfo
from .iterable import IterableSource
from .mapped import PythonDataset
from .wrap import as_source

__all__ = ["BatchInfo", "IterableSource", "PythonDataset", "SampleInfo", "SampleSource", "as_source"]

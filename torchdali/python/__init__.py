"""Sources of Python code, which may run in worker processes: datasets of torch, callbacks, iterables.

source              PythonSource, the base: fields, workers, order
mapped, callback, iterable    the three sources
*_job               the code of each that runs in a worker, and its requests
reading             readings in the caller's thread or in workers; iterable_reading: workers in turn
snapshot            where the workers of an iterable stand
sample              the structure of a sample; values: what becomes of its values in columns
call                calls of a job in the caller's thread, and failures of user code
pools               the worker processes of one loader
wrap                any dataset as a source
"""

from .callback import SampleSource
from .callback_job import BatchInfo, SampleInfo
from .iterable import IterableSource
from .mapped import PythonDataset
from .wrap import as_source

__all__ = ["BatchInfo", "IterableSource", "PythonDataset", "SampleInfo", "SampleSource", "as_source"]

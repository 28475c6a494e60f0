"""Worker processes: tasks go to them, columns of values come back, in order.

    pool     WorkerPool: tasks in, results out; it notices what goes wrong
    task     Task and Result
    crew     the processes, and their end
    launch   fork, spawn, and a fork server of our own
    worker   what runs in a process
    protocol packets between the two; large ones travel in shared memory
    slots    results in shared memory that is used again
    memory   making that memory, or saying that there is too little
    board    which sample each worker is on
    failure  an exception on its way

What holds:

- `source(payload, progress)` runs in a worker and returns columns: name -> a list of values, or an array.  It calls
  `progress(index)` before each sample, so that a death or a timeout names the sample.  Where it has an attribute
  `dataset`, that is what `torch.utils.data.get_worker_info` shows.
- `num_workers * prefetch_factor` tasks are under way; results come in the tasks' order.
- Arrays (and tensors, as arrays) are views of shared memory until `Result.release`; all else is pickled along.  A run
  whose results are never released takes more and more memory.
- An exception in the source is a `Result` with `error` and `index`, and the pool goes on.  StopIteration is a
  RuntimeError there: whoever wants to end early returns a marker as data.
- A worker that dies, or takes over `timeout` seconds for a sample, is an error of the run, and closes the pool.
- Closing a run early does not wait: workers drop its tasks at the next sample, and the pool takes the next run.
- The workers end within a second of `close`, of an error, and of the end of the pool's process, however that comes.
- Source and `worker_init_fn` are pickled, by cloudpickle unless told otherwise; under fork they are inherited, unless
  the source or its dataset defines how it is pickled (`__getstate__`, `__setstate__`, ...).  So set-up that is put off
  to `__setstate__` runs once in each worker under every start method.
- A pool belongs to the process that made it; after a fork it is an error to use it.
- The pool uses no thread, no signal handler, and nothing of multiprocessing's global state.
"""

from ..errors import SharedMemoryError, WorkerDiedError, WorkerTimeoutError
from .pool import WorkerPool
from .task import Result, Task

__all__ = [
    "Result",
    "SharedMemoryError",
    "Task",
    "WorkerDiedError",
    "WorkerPool",
    "WorkerTimeoutError",
]

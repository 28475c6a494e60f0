"""Worker processes: tasks go to them, columns of values come back, in order.

    pool       WorkerPool: tasks in, results out; it notices what goes wrong
    job        the code that runs in the workers
    task       Task and Result
    processes  all processes of a pool, and their end
    process    one of them, seen from the pool
    launch     starts them: fork, spawn, and a fork server of our own
    worker     the life of a worker process
    messages   the messages between the two
    sharing    pickles what workers are set up with
    protocol   packets that carry them; large ones travel in shared memory
    slots      answers in shared memory that is used again
    memory     reserves that memory, or says that there is too little
    status     the sample that each worker is on
    failure    an exception on its way

What holds:

- A job runs in the workers.  A task calls its `read(request, progress)`, which returns an `Answer` (columns and a
  note), or its `describe(request, progress)`, which returns a note.
- The job calls `progress(index)` before each sample, so that a death or a timeout names the sample.  Where the job has
  an attribute `dataset`, `torch.utils.data.get_worker_info` shows it.
- `num_workers * prefetch_factor` tasks are under way; results come in the tasks' order.
- Arrays (and tensors, as arrays) in columns are views of shared memory until `Result.release`; everything else is
  pickled.  A run whose results are never released takes more and more memory.
- An exception in the job is a `Result` with `error` and `index`, and the pool goes on.  StopIteration becomes a
  RuntimeError: a job that ends early says so in its note.
- A worker that dies, or takes over `timeout` seconds for a sample, is an error of the run, and closes the pool.
- Closing a run early does not wait: workers drop its tasks at the next sample, and the pool takes the next run.
- The workers end within a second of `close`, of an error, and of the end of the pool's process, however it ends.
- They, and the fork server, outlive the signals that go to a whole process group (INT, TERM, HUP, USR1, USR2): the
  pool's process decides.  `worker_init_fn` may set handlers of its own.
- The job and `worker_init_fn` are pickled as arguments of processes are, once for all workers: locks, queues and values
  of multiprocessing go with them, and tensors from 1 MiB on lie in shared memory.
- They are pickled by cloudpickle unless told otherwise; under fork they are inherited, unless
  the job or its dataset defines how it is pickled (`__getstate__`, `__setstate__`, ...).  So set-up that is put off
  to `__setstate__` runs once in each worker under every start method.
- A pool belongs to the process that made it; after a fork it is an error to use it.
- The pool uses no thread, no signal handler, and nothing of multiprocessing's global state.
"""

from ..errors import SharedMemoryError, WorkerDiedError, WorkerTimeoutError
from .job import Answer, EpochEnd, Job
from .pool import WorkerPool
from .task import Result, Task

__all__ = [
    "Answer",
    "EpochEnd",
    "Job",
    "Result",
    "SharedMemoryError",
    "Task",
    "WorkerDiedError",
    "WorkerPool",
    "WorkerTimeoutError",
]

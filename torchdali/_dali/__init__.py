"""The only importer of `nvidia.dali`: versions, the two ops namespaces, sessions, and the way in and out of DALI.

Importing DALI costs a second and asks for the GPUs, so everything here waits for its first use.
"""

from .importing import OLDEST, check_dali, check_process, dynamic
from .ops import DynamicOps, Ops, TracedOps, tfrecord_feature, torch_dtype
from .output import Output, as_batch, joined, shapes
from .pipelines import external_source, pipeline, pipeline_mode
from .session import Session, default_rng
from .streams import lease_stream, on_device, stay_on_device

__all__ = [
    "OLDEST", "DynamicOps", "Ops", "Output", "Session", "TracedOps", "as_batch", "check_dali", "check_process",
    "default_rng", "dynamic", "external_source", "joined", "lease_stream", "on_device", "pipeline", "pipeline_mode",
    "shapes", "stay_on_device", "tfrecord_feature", "torch_dtype",
]  # fmt: skip

"""DALI's pipelines, and their inputs."""

from __future__ import annotations

from typing import Any

import torch


def pipeline_mode() -> tuple[Any, Any]:
    """DALI's `fn` and `types`, for comparisons with its pipelines as users write them."""
    from nvidia.dali import fn, types

    return fn, types


def pipeline(batch_size: int, num_threads: int, device: torch.device) -> Any:
    """An empty pipeline with the dynamic executor, whose outputs are never recycled."""
    from nvidia.dali import Pipeline

    return Pipeline(
        batch_size=batch_size,
        num_threads=num_threads,
        device_id=None if device.type == "cpu" else device.index,
        prefetch_queue_depth=2,
        exec_dynamic=True,
    )


def external_source(source: Any, layouts: list[str], device: torch.device) -> list[Any]:
    """Nodes of a pipeline that are fed by `source()`: one list or array for each layout.

    On the CPU the data is not copied: the source keeps it until the outputs are there.
    """
    from nvidia.dali import fn

    no_copy = device.type == "cpu"
    return list(fn.external_source(source, num_outputs=len(layouts), layout=layouts, batch=True, no_copy=no_copy))

"""Translates datasets and transforms of other libraries."""

from .torchvision_dataset import TorchvisionDataset, from_torchvision

__all__ = ["TorchvisionDataset", "from_torchvision"]

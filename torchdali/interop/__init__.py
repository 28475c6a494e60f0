"""Datasets and transforms of other libraries, translated."""

from .torchvision_dataset import TorchvisionDataset, from_torchvision

__all__ = ["TorchvisionDataset", "from_torchvision"]

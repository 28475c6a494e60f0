"""Samplers that know what stands at any position: any seek is free, and any number of ranks continues the stream."""

from .base import OrderSampler, SampledOrder
from .class_balanced import ClassBalancedSampler
from .length_bucket import BatchedOrder, LengthBucketSampler
from .mix import Mix
from .mix_sampler import MixSampler
from .repeated import RepeatedAugmentationSampler
from .weighted import WeightedSampler

__all__ = [
    "BatchedOrder",
    "ClassBalancedSampler",
    "LengthBucketSampler",
    "Mix",
    "MixSampler",
    "OrderSampler",
    "RepeatedAugmentationSampler",
    "SampledOrder",
    "WeightedSampler",
]

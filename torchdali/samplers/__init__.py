"""Orders that know the sample at any position: any seek is free, and any number of ranks continues the stream.

For an order of your own, write a subclass of `Order`.
"""

from ..order import Order
from .class_balanced import ClassBalancedSampler
from .length_bucket import LengthBucketSampler
from .mix import Mix
from .mix_sampler import MixSampler
from .repeated import RepeatedAugmentationSampler
from .weighted import WeightedSampler

__all__ = [
    "ClassBalancedSampler",
    "LengthBucketSampler",
    "Mix",
    "MixSampler",
    "Order",
    "RepeatedAugmentationSampler",
    "WeightedSampler",
]

"""Samplers decide which samples each batch contains: (seed, epoch, batch number) -> rows of a split. NumPy only.

A sampler is an immutable record of options. `Sampler.plan` fits it to a split, and the `Plan` returns any batch of any
epoch. `order` cuts a global batch into the parts of the ranks. Never imports DALI.
"""

from loaders.samplers.balanced import ClassBalancedSampler
from loaders.samplers.base import Plan, Sampler
from loaders.samplers.check import check_sampler
from loaders.samplers.pk import PKSampler
from loaders.samplers.repeated import RepeatedSampler
from loaders.samplers.sequential import SequentialSampler
from loaders.samplers.shuffled import ShuffledSampler
from loaders.samplers.subset import SubsetSampler
from loaders.samplers.weighted import WeightedSampler

__all__ = [
    "ClassBalancedSampler",
    "PKSampler",
    "Plan",
    "RepeatedSampler",
    "Sampler",
    "SequentialSampler",
    "ShuffledSampler",
    "SubsetSampler",
    "WeightedSampler",
    "check_sampler",
]

"""Samplers decide which samples each batch contains: (seed, epoch, batch number) -> rows of a split. NumPy only.

A sampler is an immutable record of options. `Sampler.plan` fits it to a split, and the `Plan`
returns any batch of any
epoch. Never imports DALI::

    base             the interfaces `Sampler` and `Plan`; begin here
    choose, fit      from the arguments of `loaders.build` to an order; call a sampler, and check what it returns
    order            the order of an epoch, and the part of each rank
    balanced, pk, repeated, sequential, shuffled, subset, weighted
                     the samplers; pk_epoch, quotas, repeat_factors, groups and shuffle are what they are made of
    tolerant         an order that continues without bad images
    check, from_config
                     test a custom sampler; the sampler of a PaddleClas config
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

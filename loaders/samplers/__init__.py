"""Samplers decide which samples each batch contains: (seed, epoch, batch number) -> rows.

A sampler is an immutable record of options. `Sampler.plan` fits it to a split, and the `Plan`
returns any batch of any
epoch. Never imports DALI::

    base        the interfaces `Sampler` and `Plan`; begin here
    choose      from the arguments of `loaders.build` to an order: choose a sampler, and call it
    order       the part of each rank in an epoch, and how it continues without bad images
    balanced, bucket, clips, pk, shuffled, subset, weighted
                the samplers
    draws       what they are made of: random permutations, groups of rows, shares of an epoch
    named       samplers as plain values
    check       test a custom sampler
"""

from loaders.samplers.balanced import ClassBalancedSampler
from loaders.samplers.base import Plan, Sampler
from loaders.samplers.bucket import BucketSampler
from loaders.samplers.check import check_sampler
from loaders.samplers.clips import ClipSampler
from loaders.samplers.pk import PKSampler
from loaders.samplers.shuffled import RepeatedSampler, SequentialSampler, ShuffledSampler
from loaders.samplers.subset import SubsetSampler
from loaders.samplers.weighted import WeightedSampler

__all__ = [
    "BucketSampler",
    "ClassBalancedSampler",
    "ClipSampler",
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

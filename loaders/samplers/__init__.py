"""Which samples each batch holds: (seed, epoch, number) -> rows of a split. NumPy only; it must never know DALI.

A sampler is a frozen record of choices; fitted to a split it is a plan, which answers for any batch at once:
permutation.py computes random orders at single positions, so that nothing is drawn in advance or kept.
"""

from loaders.samplers.balanced import ClassBalancedSampler
from loaders.samplers.base import Plan, Sampler
from loaders.samplers.check import check_sampler
from loaders.samplers.pk import PKSampler
from loaders.samplers.shuffled import ShuffledSampler

__all__ = ["ClassBalancedSampler", "PKSampler", "Plan", "Sampler", "ShuffledSampler", "check_sampler"]

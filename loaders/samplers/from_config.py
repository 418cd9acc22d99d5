"""The sampler of a PaddleClas config -> a sampler. It must never read a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loaders.options import at_least
from loaders.samplers.base import Sampler
from loaders.samplers.pk import PKSampler
from manifests.errors import CallError

#: What reads every sample once an epoch, as loaders do without a sampler.
_PLAIN = [None, "BatchSampler", "DistributedBatchSampler"]

#: What makes batches of identities, and its argument that is the number of samples each.
_IDENTITIES = {
    "PKSampler": "sample_per_id",
    "DistributedRandomIdentitySampler": "num_instances",
    "NaiveIdentityBatchSampler": "num_instances",
}


def configured_sampler(section: Mapping[str, Any], batch_size: int) -> tuple[Sampler | None, tuple[str, ...]]:
    """Return the sampler that a config's section asks for, none for a plain one, and what of it is not followed.

    Args:
        section: of the config, as it stands.
        batch_size: samples in a batch of one rank.

    Raises:
        CallError: an argument of the section is wrong, or does not divide the batch size.

    """
    name = section.get("name")
    if name in _PLAIN:
        return None, ()
    if not isinstance(name, str):
        raise CallError(f"the config's sampler.name must be a name, got {name!r}")
    if name not in _IDENTITIES:
        return None, (f"its sampler {name} is not followed: every sample is read once an epoch",)
    key = _IDENTITIES[name]
    if section.get(key) is None:
        raise CallError(f"the config's sampler {name} states no {key}", hint=f"say {key} in the config")
    each = at_least(f"the config's sampler.{key}", section[key], 1)
    if batch_size % each:
        raise CallError(
            f"batch_size={batch_size}, and the config's sampler takes {each} samples of an identity ({key})",
            hint=f"say a batch_size that {each} divides",
        )
    method = section.get("sample_method") or "sample_avg_prob"
    if method not in ("sample_avg_prob", "id_avg_prob"):
        raise CallError(
            f"the config's sampler.sample_method is {method!r}", hint="known are 'sample_avg_prob', 'id_avg_prob'"
        )
    weight = "sample" if method == "sample_avg_prob" else "identity"
    batches = section.get("max_iters")
    if batches is not None:
        batches = at_least("the config's sampler.max_iters", batches, 1)
    sampler = PKSampler(batch_size // each, each, weight=weight, batches=batches)  # type: ignore[arg-type]
    notes = [f"its sampler {name} is {sampler!r}: an identity comes again when all have come, not by independent draws"]
    if section.get("ratio"):
        notes.append("its sampler's id_list and ratio are not followed: no identity comes oftener by its number")
    return sampler, tuple(notes)

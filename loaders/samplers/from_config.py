"""Translate the sampler section of a PaddleClas config. Reads no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from loaders.integers import require_int
from loaders.samplers.base import Sampler
from loaders.samplers.pk import PKSampler
from loaders.transforms.base import MAX_BATCH_SIZE, MAX_EPOCH_SAMPLES
from manifests.errors import CallError
from manifests.process.text import printable, shown

#: PaddleClas samplers that read every sample once per epoch, as loaders without a sampler do.
_PLAIN = [None, "BatchSampler", "DistributedBatchSampler"]

#: PaddleClas samplers that make PK batches, with their argument for K.
_PK = {
    "PKSampler": "sample_per_id",
    "DistributedRandomIdentitySampler": "num_instances",
    "NaiveIdentityBatchSampler": "num_instances",
}

_WEIGHTS: dict[str, Literal["identity", "sample"]] = {
    "sample_avg_prob": "sample",
    "id_avg_prob": "identity",
}


def configured_sampler(
    section: Mapping[str, Any], batch_size: int
) -> tuple[Sampler | None, tuple[str, ...]]:
    """Return the sampler for a config's section, and notes on what differs from PaddleClas.

    Args:
        section: the ``sampler`` section of the config.
        batch_size: samples in a batch of one rank.

    Returns:
        The sampler, and one note for each difference. The sampler is ``None`` if every sample is
        read once per epoch.

    Raises:
        CallError: an argument of the section is wrong, or K does not divide the batch size.

    """
    name = section.get("name")
    if name in _PLAIN:
        return None, ()
    if not isinstance(name, str):
        raise CallError(f"the config's sampler.name must be a string, got {shown(name)}")
    if name not in _PK:
        text = f"the config's sampler {printable(name[:100])} is not supported and ignored"
        return None, (f"{text}: every sample is read once per epoch",)
    key = _PK[name]
    if section.get(key) is None:
        raise CallError(
            f"the config's sampler {name} has no {key}", hint=f"set {key} in the config"
        )
    k = require_int(f"the config's sampler.{key}", section[key], 1, maximum=MAX_BATCH_SIZE)
    if batch_size % k:
        raise CallError(
            f"batch_size={batch_size} is not a multiple of the config's sampler.{key}={k}",
            hint=f"set batch_size to a multiple of {k}",
        )
    method = section.get("sample_method") or "sample_avg_prob"
    if method not in list(_WEIGHTS):  # it may be unhashable
        known = " or ".join(map(repr, _WEIGHTS))
        raise CallError(
            f"the config's sampler.sample_method is {shown(method)}", hint=f"set it to {known}"
        )
    batches = section.get("max_iters")
    if batches is not None:
        batches = require_int(
            "the config's sampler.max_iters", batches, 1, maximum=MAX_EPOCH_SAMPLES // batch_size
        )
    sampler = PKSampler(batch_size // k, k, weight=_WEIGHTS[method], batches=batches)
    notes = [
        f"the config's sampler {name} becomes {sampler!r}, which draws identities in rounds instead"
        " of independently"
    ]
    if section.get("ratio"):
        notes.append(
            "the config's sampler.id_list and sampler.ratio are ignored: the listed identities are"
            " not drawn more often"
        )
    return sampler, tuple(notes)

"""What identifies the batches of a loader: choices that ranks must share, and that a checkpoint must share."""

from __future__ import annotations

from typing import Any

from loaders.spec import LoaderSpec


def sampling_choices(spec: LoaderSpec) -> dict[str, Any]:
    """Return the choices that all ranks must share, because they decide which samples an epoch has."""
    options = spec.options
    return {
        "dataset": spec.split.fingerprint,
        "batch_size": options.batch_size,
        "shuffle": options.shuffle,
        "sampler": spec.order.global_text,
        "sample_order": spec.order.version,
        "seed": options.seed,
        "last_batch": options.last_batch,
    }


def checkpoint_choices(spec: LoaderSpec) -> dict[str, Any]:
    """Return the choices that another loader must share to resume from a checkpoint of this one."""
    options = spec.options
    return {
        **sampling_choices(spec),
        "transforms": spec.written.text,
        "rank": options.ranks.rank,
        "world_size": options.ranks.world_size,
        "dtype": options.dtype,
        "layout": options.layout,
        "fields": list(options.fields),
        "device": options.device.kind,
        "on_error": options.on_error,
    }

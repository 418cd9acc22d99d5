"""Which GPU a loader takes, if any. It asks torch, and must never know what runs there."""

from __future__ import annotations

from loaders.options import Options
from loaders.ranks import local_rank
from manifests.errors import CallError


def find_gpu(options: Options) -> int | None:
    """Return the number of the GPU to take, none for the processor.

    Raises:
        CallError: a GPU is asked for that is not here.

    """
    if options.device == "cpu":
        return None
    found = _count_gpus()
    if not found:
        if options.device == "auto":
            return None
        raise CallError('device="gpu", and there is none here', hint='say device="cpu" or "auto"')
    gpu = options.device_id
    if gpu is None:
        local = local_rank() if options.ranks.world_size > 1 else None
        gpu = _current_gpu() if local is None else local % found
    if gpu >= found:
        raise CallError(
            f"device_id={gpu}, and there are {found} GPUs, counted from 0",
            hint=f"say 0 to {found - 1}, or leave it out",
        )
    return gpu


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _current_gpu() -> int:
    import torch

    return torch.cuda.current_device()

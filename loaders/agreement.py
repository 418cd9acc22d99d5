"""Compare the loaders of all ranks before the first batch, through the store of torch's process group."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

from loaders.ranks import Ranks, group_ranks, imported
from manifests.errors import CallError

#: Numbers the comparisons of this process. The ranks begin their loaders in the same order, so the
#: numbers agree.
_numbers = itertools.count()

#: Longest pause between two looks at the store, in seconds. A blocking wait of the store would
#: ignore Ctrl-C.
_PAUSE = 0.05


def require_agreement(ranks: Ranks, choices: Mapping[str, Any]) -> None:
    """Wait for all ranks, and check that their loaders agree on what an epoch is.

    Without this check, ranks whose loaders differ read samples twice or never, or hang at the
    end of an epoch. Does nothing without a process group of torch, or if `ranks` are not those of
    the group, for example because one rank reads a split alone.

    Args:
        ranks: ranks of the loader.
        choices: values that must be equal on all ranks, by name; plain values.

    Raises:
        CallError: the choices of two ranks differ, or a rank does not begin to iterate before the
            timeout of the process group. Raised on every rank.

    """
    torch = imported("torch")
    if ranks.world_size == 1 or torch is None or not torch.distributed.is_available():
        return
    if not torch.distributed.is_initialized() or group_ranks() != ranks:
        return
    store = torch.distributed.distributed_c10d._get_default_store()
    prefix = f"loaders.agreement.{next(_numbers)}"
    deadline = time.monotonic() + store.timeout.total_seconds()
    own = json.dumps(choices)
    if ranks.rank == 0:
        store.set(f"{prefix}.first", own)
    _wait(store, f"{prefix}.first", deadline)
    first = store.get(f"{prefix}.first").decode()
    if own != first:
        store.set(
            f"{prefix}.difference", _difference(json.loads(first), json.loads(own), ranks.rank)
        )
    # Every rank writes before it counts itself, so the last one knows that all have written.
    if store.add(f"{prefix}.count", 1) == ranks.world_size:
        store.set(f"{prefix}.all", "")
    _wait(store, f"{prefix}.all", deadline)
    if store.check([f"{prefix}.difference"]):
        raise CallError(
            f"the loaders of the ranks differ: {store.get(f'{prefix}.difference').decode()}",
            hint=(
                "build and begin the same loaders in the same order on every rank; to read a split"
                " on one rank alone, pass rank=0, world_size=1"
            ),
        )


def _difference(first: Mapping[str, Any], own: Mapping[str, Any], rank: int) -> str:
    texts = [
        f"{name} is {first.get(name)!r} on rank 0, but {own.get(name)!r} on rank {rank}"
        for name in own
        if own[name] != first.get(name)
    ]
    return "; ".join(texts)


def _wait(store: Any, key: str, deadline: float) -> None:
    pause = 0.001
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise CallError(
                "not all ranks have begun to iterate over this loader within"
                f" {store.timeout.total_seconds():.0f} s",
                hint=(
                    "iterate on every rank; to read a split on one rank alone, pass rank=0,"
                    " world_size=1"
                ),
            )
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE)

"""Ask CUDA for enough hardware queues that a model's kernels do not wait behind the decoder's.

CUDA maps the streams of a process to 8 hardware queues. A kernel waits for the work before it in
its queue, also for work of other streams. nvJPEG uses about 40 streams, so a model that trains
beside DALI waits for decoding. ResNet-50 at batch 128 on an H200, as a fraction of its speed with
one cached batch: 0.80 with 8 queues, 0.96 with 16, 0.95 with 32.

More queues are dangerous if many processes share a GPU. Each queue takes channels of the GPU, whose
number is limited, and no decoder reports that none is left: with 14 processes of 32 queues each,
most images were black or wrong.

CUDA reads the environment variable when it starts in a process, which is often before
`loaders.build`. So importing this module sets it, and `loaders` imports this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"

QUEUES = "16"


def request_queues(environ: MutableMapping[str, str], modules: Mapping[str, Any]) -> bool:
    """Set the number of queues, unless it is set, and return whether CUDA had already started.

    Args:
        environ: the environment of the process.
        modules: the imported modules by name. Only torch tells whether it has started CUDA.

    """
    if VARIABLE in environ:
        return False
    environ[VARIABLE] = QUEUES
    torch = modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


#: Whether CUDA had started before `loaders` was imported, and without the number of queues.
STARTED_BEFORE = request_queues(os.environ, sys.modules)


def queues_note() -> str | None:
    """Return what a user should know about the number of queues, `None` if it is as it should be."""
    if STARTED_BEFORE:
        return (
            "CUDA had started before loaders was imported, so it uses 8 hardware queues, and a"
            " model that trains waits for decoding: import loaders first, or set"
            f" {VARIABLE}={QUEUES}"
        )
    given = os.environ.get(VARIABLE, "")
    if given.isdecimal() and int(given) < int(QUEUES):
        return (
            f"{VARIABLE} is {given}: with fewer than {QUEUES} hardware queues, a model that trains"
            " waits for decoding"
        )
    return None

"""Find the images that DALI does not decode on the CPU.

A separate program, because some images crash the process.

Reads a pickled list of bytes from the file that its argument names, and prints JSON: [[index, what
happened], ...]. Imports DALI once, tries each batch in a forked process, and bisects a batch that
fails.
"""

import json
import os
import pickle
import sys

import numpy as np
from nvidia.dali import fn, pipeline_def, types


@pipeline_def(num_threads=1, device_id=None, prefetch_queue_depth=1)
def pipeline(batch):
    source = fn.external_source(source=lambda: batch, batch=True)
    return fn.decoders.image(source, device="cpu", output_type=types.RGB)


def decode(images: list[bytes]) -> str:
    """Decode a batch in a forked process; return what went wrong, or ``""``."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            pipe = pipeline(
                [np.frombuffer(data, np.uint8) for data in images], batch_size=len(images)
            )
            pipe.build()
            pipe.run()
        except RuntimeError:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return "an error" if status else ""


def bisect(images: list[bytes], first: int) -> list[tuple[int, str]]:
    """Return the index, counted from `first`, of each image that fails, with what happened."""
    failure = decode(images) if images else ""
    if not failure:
        return []
    if len(images) == 1:
        return [(first, failure)]
    half = len(images) // 2
    return bisect(images[:half], first) + bisect(images[half:], first + half)


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        print(json.dumps(bisect(pickle.load(file), 0)))

"""Which images does DALI not decode on the processor? A program of its own, since some end the process.

Reads a pickled list of bytes from standard input; prints a line of JSON: [[number, what happened], ...].
It imports DALI once and tries each batch in a fork, halving a batch that fails.
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


def attempt(images: list[bytes]) -> str:
    """Decode a batch in a process of its own; give what went wrong, if anything did."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            pipe = pipeline([np.frombuffer(data, np.uint8) for data in images], batch_size=len(images))
            pipe.build()
            pipe.run()
        except RuntimeError:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return "an error" if status else ""


def search(images: list[bytes], first: int) -> list[tuple[int, str]]:
    what = attempt(images) if images else ""
    if not what:
        return []
    if len(images) == 1:
        return [(first, what)]
    half = len(images) // 2
    return search(images[:half], first) + search(images[half:], first + half)


if __name__ == "__main__":
    print(json.dumps(search(pickle.load(sys.stdin.buffer), 0)))

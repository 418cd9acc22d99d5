"""Run exported models as a server does, in a process that does not have `loaders`: `serve_models.py JOBS`.

JOBS is a JSON file: a list of ``{"version": folder of model.dali, "encoded": .npy, "out": .npz,
"largest": int}``. For each one, batches of 1 to `largest` images, padded with more zeros than
needed, run through model.dali, and through what DALI makes of dali.py. The .npz has the arrays
``model.dali 1``, ``dali.py 1`` and so on.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

import numpy as np
from nvidia.dali import Pipeline
from nvidia.dali._utils.autoserialize import invoke_autoserialize


def autoserialized(path: str) -> bytes:
    # The commands of Triton's DALI backend.
    spec = importlib.util.spec_from_file_location("autoserialize_mod", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["autoserialize_mod"] = module
    spec.loader.exec_module(module)
    target = f"{path}.serialized"
    invoke_autoserialize(module, target)
    with open(target, "rb") as file:
        return file.read()


def run(
    serialized: bytes, encoded: np.ndarray, largest: int, device_id: int | None
) -> list[np.ndarray]:
    pipeline = Pipeline.deserialize(serialized, device_id=device_id)
    results = []
    for count in range(1, largest + 1):
        start = count % (len(encoded) - count + 1)
        batch = np.pad(encoded[start : start + count], ((0, 0), (0, 7 * count)))
        pipeline.feed_input("encoded", batch)
        (images,) = pipeline.run()
        results.append(np.array((images if device_id is None else images.as_cpu()).as_tensor()))
    return results


def main() -> None:
    with open(sys.argv[1]) as file:
        jobs = json.load(file)
    for job in jobs:
        encoded = np.load(job["encoded"], allow_pickle=False)
        with open(os.path.join(job["version"], "model.dali"), "rb") as file:
            sources = {"model.dali": file.read()}
        sources["dali.py"] = autoserialized(os.path.join(job["version"], "dali.py"))
        arrays = {}
        for name, serialized in sources.items():
            for count, images in enumerate(
                run(serialized, encoded, job["largest"], job["device_id"]), 1
            ):
                arrays[f"{name} {count}"] = images
        np.savez(job["out"], **arrays)
    assert "loaders" not in sys.modules


if __name__ == "__main__":
    main()

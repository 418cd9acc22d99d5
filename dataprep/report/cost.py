"""What training with a dataset costs: decoding speed by image size, bytes of an epoch, and GPU memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataprep.report.columns import Columns
from dataprep.report.facts import Cost, EpochCost, SizeClass
from manifests.schema import Manifest

#: Mean pixels of an image, and images per second that `loaders` delivered on one H200 with 16 CPU
#: cores with the preset imagenet-train, all data in memory: docs/speed.md and docs/memory.md.
MEASURED = ((341 * 256, 39_000.0), (500 * 375, 23_500.0), (3840 * 2160, 1_905.0))
#: Images per second for raw pixels of 256x256, on the same GPU.
MEASURED_RAW, RAW_PIXELS = 87_700.0, 256 * 256
#: GPU and CPU of these measurements.
MACHINE = "one H200 with 16 CPU cores, preset imagenet-train, images in memory"

#: Upper bounds of the shorter sides of the groups of images, in pixels.
_BOUNDS = (128, 256, 384, 512, 768, 1080, 2160)


def decoding_speed(mean_pixels: float, *, encoded: bool = True) -> float:
    """Predict the images per second of loading, by interpolation between measurements.

    Time per image grows in proportion to a power of its pixels between two measurements. Smaller
    images count as the smallest measured ones, because other work than decoding limits their speed.
    """
    if not encoded:
        return MEASURED_RAW * min(1.0, RAW_PIXELS / max(mean_pixels, 1.0))
    pixels, speed = (np.log(column) for column in zip(*MEASURED, strict=True))
    if mean_pixels > MEASURED[-1][0]:
        return MEASURED[-1][1] * MEASURED[-1][0] / mean_pixels
    return float(np.exp(np.interp(np.log(max(mean_pixels, 1.0)), pixels, speed)))


def size_classes(columns: Columns, *, encoded: bool) -> tuple[SizeClass, ...]:
    """Group the images by their shorter side."""
    pixels = columns.width.astype(np.int64) * columns.height
    group = np.searchsorted(_BOUNDS, np.minimum(columns.width, columns.height))
    total = max(1, int(pixels.sum()))
    lows = (1, *(bound + 1 for bound in _BOUNDS))
    names = [f"{low:,} to {high:,}" for low, high in zip(lows, _BOUNDS, strict=False)] + [
        f"over {_BOUNDS[-1]:,}"
    ]
    found = []
    for number in np.unique(group).tolist():
        inside: NDArray[np.int64] = pixels[group == number]
        mean = float(inside.mean())
        speed = decoding_speed(mean, encoded=encoded)
        share = round(int(inside.sum()) / total, 6)
        found.append(SizeClass(names[number], len(inside), share, round(mean), _rounded(speed)))
    return tuple(found)


def epoch_costs(columns: Columns, *, encoded: bool) -> tuple[EpochCost, ...]:
    """Predict what an epoch over each split takes."""
    pixels = columns.width.astype(np.int64) * columns.height
    costs = []
    for number, split in enumerate(columns.splits):
        rows = columns.split == number
        count = int(rows.sum())
        speed = (
            _rounded(decoding_speed(float(pixels[rows].mean()), encoded=encoded)) if count else 0.0
        )
        seconds = round(count / speed, 1) if speed else 0.0
        costs.append(EpochCost(split, count, int(columns.size[rows].sum()), speed, seconds))
    return tuple(costs)


def make_cost(
    columns: Columns, manifest: Manifest, batch_size: int, memory: Mapping[str, Any] | str
) -> Cost:
    """Join the parts; `memory` is the result of `MemoryEstimate.result`."""
    encoded = manifest.store == "encoded"
    note = memory if isinstance(memory, str) else ""
    known = None if isinstance(memory, str) else memory["splits"]
    return Cost(
        batch_size=batch_size,
        gpu_memory=(
            None if known is None else {split: each["gpu_memory"] for split, each in known.items()}
        ),
        memory_note=note,
        sizes=size_classes(columns, encoded=encoded),
        epochs=epoch_costs(columns, encoded=encoded),
    )


class MemoryEstimate:
    """The estimate of GPU memory that ``loaders memory`` prints, computed while this process does other work.

    `dataprep` never imports `loaders`, which knows how much memory decoding takes, so this runs its
    program.
    """

    def __init__(self, folder: str, batch_size: int) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "loaders",
            "memory",
            "--batch-size",
            str(batch_size),
            "--json",
            "--",
            folder,
        ]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def result(self) -> Mapping[str, Any] | str:
        """Wait for the estimate; return it, or why there is none."""
        output, errors = self._process.communicate()
        if self._process.returncode:
            return (
                errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
                or "`loaders memory` failed"
            )
        found: Mapping[str, Any] = json.loads(output)
        return found

    def close(self) -> None:
        """Stop the program, if it still runs."""
        self._process.kill()
        self._process.communicate()


def _rounded(speed: float) -> float:
    """Round a prediction to two digits: it is no more precise."""
    return float(f"{speed:.2g}")

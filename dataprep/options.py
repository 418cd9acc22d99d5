"""The options that decide which bytes are written. It must never import anything heavy: each worker reads it first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dataprep.images import MAX_PIXELS, Validation
from manifests.schema import Format


@dataclass(frozen=True)
class Options:
    """All that decides which bytes are written, and nothing else.

    Attributes:
        fmt: record format.
        shard_bytes: a shard closes before its images exceed this many bytes.
        shard_samples: a shard holds this many samples; overrides `shard_bytes`.
        shuffle: one global shuffle within each split.
        seed: any integer from 0.
        val_fraction: share of the train split to put into a new split val, 0 to 1.
        split_by: column whose values val and train must not share.
        validate: how far to trust the images.
        max_pixels: more than this are a decompression bomb.

    """

    fmt: Format = "tfrecord"
    shard_bytes: int = 256 << 20
    shard_samples: int | None = None
    shuffle: bool = True
    seed: int = 0
    val_fraction: float = 0.0
    split_by: str | None = None
    validate: Validation = "header"
    max_pixels: int = MAX_PIXELS

    def as_json(self) -> dict[str, Any]:
        """Return the options as the manifest carries them."""
        told = asdict(self)
        if self.shard_samples:  # what is overridden decides no byte, and must not tell two runs apart
            told["shard_bytes"] = Options.shard_bytes
        return told

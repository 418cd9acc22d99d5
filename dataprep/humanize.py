"""Numbers as a person reads them."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Write ``1 class``, ``1,200 classes``."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def size(length: float) -> str:
    """Write a length in bytes with a decimal unit: ``1.2 GB``."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if length < 1000:
            return f"{length:,.0f} {unit}" if unit == "bytes" else f"{length:,.1f} {unit}"
        length /= 1000
    return f"{length:,.1f} TB"


def duration(seconds: float) -> str:
    """Write a time to wait: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def contents(samples: int, length: int, shards: int) -> str:
    """Write ``1,000 samples, 1.2 GB, 5 shards``."""
    return f"{count(samples, 'sample')}, {size(length)}, {count(shards, 'shard')}"

"""Format sizes, durations and totals for people to read."""

from __future__ import annotations

from manifests.process.text import format_bytes, plural

__all__ = ["format_bytes", "format_duration", "format_totals"]


def format_duration(seconds: float) -> str:
    """Format a duration: ``40 s``, ``12 min``, ``3.5 h``. The shortest is ``1 s``."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_totals(samples: int, size: int, shards: int) -> str:
    """Format the totals of a split: ``1,000 samples, 1.2 GB, 5 shards``."""
    return f"{plural(samples, 'sample')}, {format_bytes(size)}, {plural(shards, 'shard')}"

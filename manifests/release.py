"""The release of this project that is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """Return the version, or ``"unknown"`` for a source tree that is not installed."""
    try:
        return version("dataprep-loaders")
    except PackageNotFoundError:
        return "unknown"

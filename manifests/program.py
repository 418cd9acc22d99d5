"""The old place of `manifests.process.program`, for programs that were installed before."""

from manifests.process.program import run_loaders

__all__ = ["run_loaders"]

"""Convert images on disk into shards. Never imports DALI, torch or `loaders`.

::

    the program      __main__; packages commands (one file a command), report (one HTML page)
    from Python      interface: the commands as functions, `dataprep.convert`
    what to convert  packages sources (folders, lists, tables, datasets), containers (images inside larger files)
    a conversion     options, canary, progress, arrays (types of NumPy arrays), spool (large columns of arrays on disk); packages run (begin here), plan (split, order, shard and its name),
                     ledger (what the output folder contains; after a kill), engines (processes, Ray)
    one shard        packages shards (write one), images (check, decode, resize), labels (kinds of labels), formats
                     (TFRecord, WebDataset)
    files            package storage (a file system or an object store)
    a dataset        packages indexing (shards of other tools), verification, duplicates, summary (and differences);
                     repair
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` takes time
    from typing import Any

    from dataprep.interface import convert, diff, index, info, join, verify
    from manifests.errors import CallError, DamagedError, DataProblemError, DatasetError

__all__ = [
    "CallError",
    "DamagedError",
    "DataProblemError",
    "DatasetError",
    "convert",
    "diff",
    "index",
    "info",
    "join",
    "verify",
]


def __getattr__(name: str) -> Any:
    # Each program and each worker imports this package, and needs none of them.
    if name == "__version__":
        from manifests.process.program import release

        return release()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "manifests.errors" if name.endswith("Error") else "dataprep.interface"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return __all__

"""What `dataprep` and `loaders` share: the format of a dataset on disk, and the rules that both programs follow.

Never imports `dataprep` or `loaders`.

::

    the format       schema, labels, arrays, pixels, dali_index; docs/format.md specifies it
    its manifest     store (begin here), serialization, json_members
    its tables       tables, parquet, filters
    files            files: local or in an object store, perhaps from anybody; yaml_file
    errors           errors
    data classes     records
    sizes            buckets, naflex
    object stores    package remote
    the programs     package process
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from manifests.store import read_dataset

__all__ = ["read_dataset"]


def __getattr__(name: str) -> Any:
    if name == "read_dataset":  # imported late: programs start without what it needs
        from manifests.store import read_dataset

        return read_dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

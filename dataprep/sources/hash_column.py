"""The column of perceptual hashes in the sample tables of a prepared dataset."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from dataprep.options import HASH_COLUMN, HASH_RECIPE
from dataprep.sources.base import Source
from manifests.schema import Manifest

#: What a hash looks like.
_HASH = "^[0-9a-f]{64}$"


def without_foreign_hashes(extra: pa.Table, manifest: Manifest) -> pa.Table:
    """Return the extra columns of a dataset without a column of hashes that this release cannot use.

    Args:
        extra: the extra columns.
        manifest: the manifest, which states the recipe of the hashes.

    """
    if HASH_COLUMN not in extra.column_names:
        return extra
    text = extra[HASH_COLUMN]
    if (
        manifest.options.get("hash") == HASH_RECIPE
        and pa.types.is_string(text.type)
        and pc.all(pc.match_substring_regex(text, _HASH)).as_py() is not False
    ):
        return extra
    return extra.drop_columns([HASH_COLUMN])


def without_hashes(source: Source) -> Source:
    """Return a source without the hashes of a prepared dataset, for a conversion that does not record their recipe."""
    if not source.prepared or HASH_COLUMN not in source.extra.column_names:
        return source
    return replace(source, extra=source.extra.drop_columns([HASH_COLUMN]))

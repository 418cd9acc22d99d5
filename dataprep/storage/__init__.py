"""Files on disk: `local` writes them, `partials` publishes them when complete, `views` reads them by position."""

from dataprep.storage.local import flush, locked, remove, translate_errors, write_all
from dataprep.storage.partials import (
    PARTIALS_NAME,
    check_partials,
    discard,
    has_partials,
    partial_path,
    partials,
    partials_named,
    publish,
    publish_all,
    replace_file,
    sweep,
    write_partial,
)
from dataprep.storage.views import FileView, checksum_of, describe, is_cached, open_view

__all__ = [
    "PARTIALS_NAME",
    "FileView",
    "check_partials",
    "checksum_of",
    "describe",
    "discard",
    "flush",
    "has_partials",
    "is_cached",
    "locked",
    "open_view",
    "partial_path",
    "partials",
    "partials_named",
    "publish",
    "publish_all",
    "remove",
    "replace_file",
    "sweep",
    "translate_errors",
    "write_all",
    "write_partial",
]

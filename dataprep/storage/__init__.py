"""Files on disk: `local` writes and publishes them, `views` reads them by position."""

from dataprep.storage.local import (
    PARTIAL_PREFIX,
    clean_partials,
    discard,
    flush,
    locked,
    partial_path,
    publish,
    publish_all,
    remove,
    replace_file,
    translate_errors,
    write_all,
    write_partial,
)
from dataprep.storage.views import FileView, ReadBack, describe, is_cached, open_view

__all__ = [
    "PARTIAL_PREFIX",
    "FileView",
    "ReadBack",
    "clean_partials",
    "describe",
    "discard",
    "flush",
    "is_cached",
    "locked",
    "open_view",
    "partial_path",
    "publish",
    "publish_all",
    "remove",
    "replace_file",
    "translate_errors",
    "write_all",
    "write_partial",
]

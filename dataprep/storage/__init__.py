"""Files of datasets: on a file system, or in an object store.

`files` has the interface of both, `local_files` and `remote` implement it. `local` writes files, `partials` keeps them
under temporary names until they are complete, `views` reads them by position.
"""

from dataprep.storage.files import (
    Entry,
    View,
    describe,
    file_length,
    is_cached,
    is_file,
    is_folder,
    list_folder,
    open_view,
    publish_all,
    remove,
    stat,
)
from dataprep.storage.local import flush, locked, translate_errors, write_all
from dataprep.storage.partials import (
    PARTIALS_NAME,
    check_partials,
    discard,
    has_partials,
    partial_path,
    partials,
    partials_named,
    publish,
    replace_file,
    shared_names,
    shared_partials,
    shared_path,
    sweep,
    sweep_dead,
    withdraw,
    write_partial,
)
from dataprep.storage.views import FileView, checksum_of

__all__ = [
    "PARTIALS_NAME",
    "Entry",
    "FileView",
    "View",
    "check_partials",
    "checksum_of",
    "describe",
    "discard",
    "file_length",
    "flush",
    "has_partials",
    "is_cached",
    "is_file",
    "is_folder",
    "list_folder",
    "locked",
    "open_view",
    "partial_path",
    "partials",
    "partials_named",
    "publish",
    "publish_all",
    "remove",
    "replace_file",
    "shared_names",
    "shared_partials",
    "shared_path",
    "stat",
    "sweep",
    "sweep_dead",
    "translate_errors",
    "withdraw",
    "write_all",
    "write_partial",
]

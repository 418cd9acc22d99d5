"""Files of datasets: on a file system, or in an object store.

::

    files                   the interface of both; local_files and remote implement it
    commit                  writes files under temporary names, and renames them when they are complete
    partials                the folders of temporary files, and which process writes each of them
    views, remote_view      read files by position
    local                   what local files need: locks, flushes, reasons of errors
    temporary               temporary files in ``TMPDIR``
"""

from dataprep.storage.commit import (
    PartialFile,
    close_file,
    discard,
    not_as_written,
    publish,
    replace_file,
    withdraw,
    write_partial,
    write_to,
)
from dataprep.storage.files import (
    Entry,
    View,
    create_file,
    describe,
    file_length,
    is_cached,
    is_file,
    is_folder,
    list_folder,
    make_folder,
    map_files,
    open_view,
    publish_all,
    remember,
    remove,
    replace_unchanged,
    stat,
)
from dataprep.storage.local import flush, locked, translate_errors, write_all
from dataprep.storage.partials import (
    BOOKKEEPING,
    PARTIALS_NAME,
    check_partials,
    has_partials,
    partial_path,
    partials,
    partials_named,
    remove_partials,
    shared_names,
    shared_partials,
    shared_path,
    sweep,
    sweep_dead,
)
from dataprep.storage.views import FileView, checksum_of

__all__ = [
    "BOOKKEEPING",
    "PARTIALS_NAME",
    "Entry",
    "FileView",
    "PartialFile",
    "View",
    "check_partials",
    "checksum_of",
    "close_file",
    "create_file",
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
    "make_folder",
    "map_files",
    "not_as_written",
    "open_view",
    "partial_path",
    "partials",
    "partials_named",
    "publish",
    "publish_all",
    "remember",
    "remove",
    "remove_partials",
    "replace_file",
    "replace_unchanged",
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
    "write_to",
]

"""Files of datasets: on a file system, or in an object store.

::

    files       the interface of both; local and remote implement it
    temporary   temporary files: writes and renames them when they are complete; their folders, and
                which process writes each of them

Who removes a temporary file that is never renamed::

    the process that wrote it                   temporary.discard, after an error
    the run that has locked the folder          temporary.partials at its end: also files of dead workers
    the next run, if that run was killed        temporary.sweep
    another process of `dataprep work`          temporary.sweep: files of dead processes of its machine
    `dataprep finish`, if no shard is missing   temporary.remove_partials: the files of all machines
"""

from dataprep.storage.files import (
    describe,
    exists,
    file_length,
    guarded,
    has_latency,
    has_locks,
    has_renames,
    identify,
    is_cached,
    is_file,
    is_folder,
    list_folder,
    locked,
    make_folder,
    names_in,
    open_view,
    prefetch_folders,
    publish_all,
    remember,
    remove,
    remove_all,
    remove_empty_folder,
    scan_folder,
    stat,
    walk,
)
from dataprep.storage.local import (
    Check,
    Entry,
    RandomAccess,
    translate_errors,
)
from dataprep.storage.temporary import (
    BOOKKEEPING,
    PARTIALS_NAME,
    PLAN_FOLDER,
    PartialFile,
    check_partials,
    close_file,
    create_file,
    discard,
    has_partials,
    not_as_written,
    partial_path,
    partials,
    partials_named,
    publish,
    remove_partials,
    replace_file,
    replace_unchanged,
    shared_names,
    shared_partials,
    shared_path,
    sweep,
    write_partial,
    write_to,
)
from manifests.files import map_files

__all__ = [
    "BOOKKEEPING",
    "PARTIALS_NAME",
    "PLAN_FOLDER",
    "Check",
    "Entry",
    "PartialFile",
    "RandomAccess",
    "check_partials",
    "close_file",
    "create_file",
    "describe",
    "discard",
    "exists",
    "file_length",
    "guarded",
    "has_latency",
    "has_locks",
    "has_partials",
    "has_renames",
    "identify",
    "is_cached",
    "is_file",
    "is_folder",
    "list_folder",
    "locked",
    "make_folder",
    "map_files",
    "names_in",
    "not_as_written",
    "open_view",
    "partial_path",
    "partials",
    "partials_named",
    "prefetch_folders",
    "publish",
    "publish_all",
    "remember",
    "remove",
    "remove_all",
    "remove_empty_folder",
    "remove_partials",
    "replace_file",
    "replace_unchanged",
    "scan_folder",
    "shared_names",
    "shared_partials",
    "shared_path",
    "stat",
    "sweep",
    "translate_errors",
    "walk",
    "write_partial",
    "write_to",
]

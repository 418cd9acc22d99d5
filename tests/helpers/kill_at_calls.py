"""Change a dataset many times, and kill the change with SIGKILL before a different file operation each time.

This is a separate program because it forks, which a test process with threads must not do. It
prints one line of JSON.
Usage: kill_at_calls.py FIRST SECOND FOLDER FORMAT STRIDE ACTION
"""

import builtins
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from dataprep.options import Downscale, JoinOptions, Options, Raw, RemoveOptions, SyncOptions
from dataprep.plan.files import plan_folder, remove_plan
from dataprep.run.commit import revert_dataset
from dataprep.run.convert import append_dataset, convert_dataset, write_append_plan
from dataprep.run.finish import finish
from dataprep.run.join import join_dataset
from dataprep.run.remove import remove_samples
from dataprep.run.sync import sync_dataset
from dataprep.run.work import Share, work
from dataprep.shards import write as shards
from dataprep.sources import read_source
from dataprep.storage import local
from manifests.store import read_manifest

FIRST, SECOND, FOLDER, FORMAT, STRIDE, ACTION = sys.argv[1:]
BEFORE, OUT = Path(FOLDER, "before"), Path(FOLDER, "out")
OPTIONS = {"fmt": FORMAT, "shard_samples": 5, "shuffle": False}

# --- actions --------------------------------------------------------------------------------------


def convert(out: str, source: str = SECOND, **options) -> None:
    convert_dataset(read_source(source), out, Options(**OPTIONS, **options), workers=1)


def append(out: str) -> None:
    append_dataset(read_source(SECOND), out, Options(**OPTIONS), name="second", workers=1)


def append_in_steps(out: str) -> None:
    write_append_plan(read_source(SECOND), out, Options(**OPTIONS), name="second", workers=1)
    for task in range(2):
        work(out, Share(task, 2), workers=1)
    finish(out, workers=1)
    remove_plan(out)  # it is not among the files that are compared
    os.rmdir(plan_folder(out))


def join(out: str) -> None:
    table = Path(FOLDER, "scores.csv")
    rows = [f"{number:08d},{number / 2}" for number in range(10)]
    table.write_text("\n".join(["key,score", *rows]))
    join_dataset(out, str(table), JoinOptions(on="key"))


def remove(out: str, *, scrub: bool = True) -> None:
    keys = Path(FOLDER, "keys.txt")
    keys.write_text("\n".join(f"{number:08d}" for number in (1, 5, 6, 7, 8, 9)))
    remove_samples(out, RemoveOptions(keys=str(keys), scrub=scrub))


def sync(out: str) -> None:
    source = Path(FOLDER, "edited")
    if not source.exists():
        shutil.copytree(FIRST, source)
        first, second, third, fourth = sorted(source.rglob("*.jpg"))
        first.rename(third.with_name("moved.jpg"))
        second.unlink()
        third.write_bytes(fourth.read_bytes())
    share = SyncOptions(max_removed=0.5, workers=1)
    sync_dataset(read_source(str(source)), out, share, name="edited")


#: Each action, and what makes the dataset that it finds.
ACTIONS = {
    "convert": (convert, []),
    "resize": (lambda out: convert(out, downscale=Downscale(shorter=10)), []),
    "raw": (lambda out: convert(out, raw=Raw(12)), []),
    "append": (append, [convert]),
    "steps": (append_in_steps, [convert]),
    "revert": (revert_dataset, [convert, append]),
    "join": (join, [convert]),
    "remove": (lambda out: remove(out, scrub=False), [convert]),
    "scrub": (remove, [convert]),
    "joined": (remove, [convert, join]),
    "sync": (sync, [convert]),
}

# --- kills ----------------------------------------------------------------------------------------

#: The functions that change a folder. The process can be killed before each call of one of them.
CALLS = (
    *((os, name) for name in ("mkdir", "open", "pwritev", "write", "rename", "unlink", "fsync")),
    (builtins, "open"),
    (shards, "write_table"),
    (local, "flush"),
)
OPEN, OS_OPEN = open, os.open


def only_reads(call, *args, **kwargs) -> bool:
    """Return whether a call opens a file for reading, before which a kill changes nothing."""
    if call is OPEN:
        return not set(str(args[1] if len(args) > 1 else kwargs.get("mode", "r"))) & set("wax+")
    return call is OS_OPEN and not args[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)


def count_calls(chosen: int = -1) -> Iterator[int]:
    """Let this process count the calls, and kill itself before the chosen one; return the counter."""
    count = itertools.count()

    def wrap(call):
        def counted(*args, **kwargs):
            if not only_reads(call, *args, **kwargs) and next(count) == chosen:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for module, name in CALLS:
        setattr(module, name, wrap(getattr(module, name)))
    return count


def in_child(function, *arguments) -> bool:
    """Call a function in a child process; return whether it was killed."""
    child = os.fork()
    if not child:
        function(*arguments)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"a run ended with {status}")
    return status != 0


def files() -> dict[str, bytes]:
    found = [*OUT.glob("[!.]*"), *OUT.glob(".dataprep/*.json")]
    return {str(path.relative_to(OUT)): path.read_bytes() for path in found if path.is_file()}


def begin() -> dict[str, bytes]:
    shutil.rmtree(OUT, ignore_errors=True)
    if BEFORE.exists():
        shutil.copytree(BEFORE, OUT)
    return files()


def is_whole() -> bool:
    """Return whether every file that the manifest lists is there with its length."""
    splits = read_manifest(OUT).splits
    listed = [file for split in splits for shard in split.shards for file in shard.files]
    sizes = {path.name: path.stat().st_size for path in OUT.iterdir()}
    return all(sizes.get(file.name) == file.bytes for file in listed)


def main() -> None:
    act, before = ACTIONS[ACTION]
    if before:
        in_child(convert, str(BEFORE), FIRST)
    for function in before[1:]:
        in_child(function, str(BEFORE))
    old = begin()
    in_child(act, str(OUT))
    new = files()
    begin()
    reader, writer = os.pipe()

    def count() -> None:
        counter = count_calls()
        act(str(OUT))
        os.write(writer, str(next(counter)).encode())

    def act_until(call: int) -> None:
        count_calls(call)
        act(str(OUT))

    in_child(count)
    total, killed, different, broken = int(os.read(reader, 99)), 0, [], []
    # A sync has two revisions.
    names = ((old, "manifest.json"), (new, "manifest.json"), (new, "manifest.1.json"))
    manifests = [state.get(name) for state, name in names]
    for call in range(0, total, int(STRIDE)):
        begin()
        killed += in_child(act_until, call)
        found = files()
        if manifest := found.get("manifest.json"):
            # A new dataset has its manifest last.
            is_right = manifest in manifests and (is_whole() if old else found == new)
        else:
            is_right = not old
        if not is_right:
            broken.append(call)
        is_journal = Path(OUT, ".dataprep/journal.json").exists()
        if ACTION != "revert" or read_manifest(OUT).revision or is_journal:
            in_child(act, str(OUT))
        if files() != new or (ACTION != "revert" and Path(OUT, ".dataprep/partial").exists()):
            different.append(call)
    result = {"killed": killed, "different": different, "broken": broken, "files": len(new)}
    print(json.dumps({"calls": total, **result}))


main()

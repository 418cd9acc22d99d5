"""Append to a dataset, join columns to it, remove samples, or revert an append, many times.

Kill it before a different file operation each time.

This is a separate program because it forks. It prints one line of JSON.
Usage: kill_appends.py FIRST SECOND FOLDER FORMAT STRIDE append|steps|join|remove|scrub|joined|sync|revert
"""

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from kill_at_calls import count_calls, files, in_child, is_killed

from dataprep.options import JoinOptions, Options, RemoveOptions, SyncOptions
from dataprep.plan.files import plan_folder, remove_plan
from dataprep.run.commit import revert_dataset
from dataprep.run.convert import append_dataset, convert_dataset, write_append_plan
from dataprep.run.finish import finish
from dataprep.run.join import join_dataset
from dataprep.run.remove import remove_samples
from dataprep.run.sync import sync_dataset
from dataprep.run.work import Share, work
from dataprep.sources import read_source
from manifests.store import read_manifest


def append(source: str, out: str, options: Options) -> None:
    append_dataset(read_source(source), out, options, name="second", workers=1)


def append_in_steps(source: str, out: str, options: Options) -> None:
    write_append_plan(read_source(source), out, options, name="second", workers=1)
    for task in range(2):
        work(out, Share(task, 2), workers=1)
    finish(out, workers=1)
    remove_plan(out)  # it is not among the files that are compared
    os.rmdir(plan_folder(out))


def join(_: str, out: str, options: Options) -> None:
    del options
    table = Path(out).with_name("scores.csv")
    rows = [f"{number:08d},{number / 2}" for number in range(10)]
    table.write_text("\n".join(["key,score", *rows]))
    join_dataset(out, str(table), JoinOptions(on="key"))


def remove(_: str, out: str, options: Options, *, scrub: bool = False) -> None:
    del options
    keys = Path(out).with_name("keys.txt")
    keys.write_text("\n".join(f"{number:08d}" for number in (1, 5, 6, 7, 8, 9)))
    remove_samples(out, RemoveOptions(keys=str(keys), scrub=scrub))


def sync(_: str, out: str, options: Options) -> None:
    del options
    source = Path(out).with_name("edited")
    if not source.exists():
        shutil.copytree(sys.argv[1], source)
        first, second, third, fourth = sorted(source.rglob("*.jpg"))
        first.rename(third.with_name("moved.jpg"))
        second.unlink()
        third.write_bytes(fourth.read_bytes())
    share = SyncOptions(max_removed=0.5, workers=1)
    sync_dataset(read_source(str(source)), out, share, name="edited")


ACTIONS = {
    "sync": sync, "join": join, "remove": remove, "scrub": partial(remove, scrub=True),
    "joined": partial(remove, scrub=True), "append": append, "steps": append_in_steps,
    "revert": lambda _, out, __: revert_dataset(out),
}  # fmt: skip
#: What is done before some of them.
FIRST = {"revert": append, "joined": join}


def main() -> None:
    first, second, folder, fmt, stride, action = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
    options = Options(fmt=fmt, shard_samples=5, shuffle=False)
    before, out = os.path.join(folder, "before"), os.path.join(folder, "out")

    def act() -> None:
        ACTIONS[action](second, out, options)

    def begin() -> dict[str, bytes]:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(before, out)
        return files(out)

    in_child(lambda: convert_dataset(read_source(first), before, options, workers=1))
    if action in FIRST:
        in_child(lambda: FIRST[action](second, before, options))
    old = begin()
    in_child(act)
    new = files(out)
    begin()
    total = count_calls(act)
    killed, different, broken = 0, [], []
    for call in range(0, total, stride):
        begin()
        killed += is_killed(act, call)
        # A sync has two revisions.
        whole = (old["manifest.json"], new["manifest.json"])
        if action == "sync":
            whole += (new["manifest.1.json"],)
        if files(out).get("manifest.json") not in whole or not is_whole(out):
            broken.append(call)
        is_reverted = (
            read_manifest(out).revision == 0 and not Path(out, ".dataprep/journal.json").exists()
        )
        if action != "revert" or not is_reverted:
            in_child(act)
        if files(out) != new or (action != "revert" and Path(out, ".dataprep/partial").exists()):
            different.append(call)
    print(json.dumps({"calls": total, "killed": killed, "different": different, "broken": broken}))


def is_whole(out: str) -> bool:
    """Return whether every file that the manifest lists is there with its length."""
    shards = [shard for split in read_manifest(out).splits for shard in split.shards]
    return all(
        Path(out, file.name).is_file() and Path(out, file.name).stat().st_size == file.bytes
        for shard in shards
        for file in shard.files
    )


main()

"""Run a conversion many times, and kill it with SIGKILL before a different file operation each time.

This is a separate program because it forks, which a test process with threads must not do. It
prints one line of JSON.
Usage: kill_at_calls.py SRC OUT FORMAT STRIDE [resize|raw]
"""

import builtins
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from dataprep.options import Downscale, Options, Raw
from dataprep.run.convert import convert_dataset
from dataprep.shards import write as shards
from dataprep.sources import read_source
from dataprep.storage import local

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


class KillSwitch:
    """Counts calls and kills this process before the chosen one; -1 never kills."""

    def __init__(self, chosen: int) -> None:
        self.chosen, self.count = chosen, 0

    def count_call(self) -> None:
        if self.count == self.chosen:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def wrap(self, call):
        def counted(*args, **kwargs):
            if not only_reads(call, *args, **kwargs):
                self.count_call()
            return call(*args, **kwargs)

        return counted


#: Options of the last argument.
IMAGE_OPTIONS = {"resize": {"downscale": Downscale(shorter=10)}, "raw": {"raw": Raw(12)}}


def convert(src: str, out: str, fmt: str) -> None:
    options = Options(
        fmt=fmt, shard_samples=5, shuffle=False, **IMAGE_OPTIONS.get(sys.argv[-1], {})
    )
    convert_dataset(read_source(src), out, options, workers=1)


def in_child(function) -> int:
    """Call a function in a child process; return the signal that killed it, or 0."""
    child = os.fork()
    if not child:
        function()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status and not os.WIFSIGNALED(status):
        raise SystemExit(f"a run ended with {status}")
    return os.WTERMSIG(status) if status else 0


def count_calls(act) -> int:
    """Return how many calls a function makes in a child process."""
    reader, writer = os.pipe()

    def count() -> None:
        switch = KillSwitch(-1)
        install(switch)
        act()
        os.write(writer, str(switch.count).encode())

    in_child(count)
    return int(os.read(reader, 99))


def is_killed(act, call: int) -> bool:
    """Call a function in a child process that is killed before a call; return whether it was."""

    def act_and_die() -> None:
        install(KillSwitch(call))
        act()

    return in_child(act_and_die) == signal.SIGKILL


def install(switch: KillSwitch) -> None:
    for module, name in CALLS:
        setattr(module, name, switch.wrap(getattr(module, name)))


def files(folder: str) -> dict[str, bytes]:
    found = [*Path(folder).glob("[!.]*"), *Path(folder).glob(".dataprep/*.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found if path.is_file()}


def main() -> None:
    src, out, fmt, stride = *sys.argv[1:4], int(sys.argv[4])
    in_child(lambda: convert(src, out, fmt))
    undisturbed = files(out)
    shutil.rmtree(out)
    total = count_calls(lambda: convert(src, out, fmt))
    killed, different, early_manifest = 0, [], []
    for call in range(0, total, stride):
        shutil.rmtree(out, ignore_errors=True)
        killed += is_killed(lambda: convert(src, out, fmt), call)
        remaining = files(out) if os.path.isdir(out) else {}
        if "manifest.json" in remaining and remaining != undisturbed:
            early_manifest.append(call)
        in_child(lambda: convert(src, out, fmt))
        if files(out) != undisturbed:
            different.append(call)
    print(
        json.dumps(
            {
                "calls": total, "killed": killed, "different": different,
                "early_manifest": early_manifest, "files": sorted(undisturbed),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()

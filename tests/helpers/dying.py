"""Run a conversion again and again, and die by SIGKILL at each of its file operations in turn.

A program of its own: it forks, and a test process with threads must not. Prints one line of JSON.
Usage: dying.py SRC OUT FORMAT STRIDE [resize|raw]
"""

import builtins
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from dataprep import convert as work
from dataprep import shards, storage
from dataprep.options import Downscale, Options, Raw
from dataprep.sources import read_source

#: All by which a run changes a folder; before each is a moment to die.
CALLS = (
    *((os, name) for name in ("mkdir", "open", "writev", "write", "rename", "unlink", "fsync")),
    (builtins, "open"),
    (shards, "write_table"),
    (storage, "flush"),
)


class Death:
    """Counts moments and kills this process at the chosen one."""

    def __init__(self, chosen: int) -> None:
        self.chosen, self.count = chosen, 0

    def pass_by(self) -> None:
        if self.count == self.chosen:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, call):
        def watched(*args, **kwargs):
            self.pass_by()
            return call(*args, **kwargs)

        return watched


#: What is done to images, by the name of it.
ALTERED = {"resize": {"downscale": Downscale(shorter=10)}, "raw": {"raw": Raw(12)}}


def convert(src: str, out: str, fmt: str) -> None:
    options = Options(fmt=fmt, shard_samples=5, shuffle=False, **ALTERED.get(sys.argv[-1], {}))
    work.convert_dataset(read_source(src), out, options, workers=1)


def in_child(function) -> int:
    """Call a function in a process of its own; give the signal that ended it, or 0."""
    child = os.fork()
    if not child:
        function()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status and not os.WIFSIGNALED(status):
        raise SystemExit(f"a run ended with {status}")
    return os.WTERMSIG(status) if status else 0


def moments(src: str, out: str, fmt: str) -> int:
    death = Death(-1)
    watch(death)
    convert(src, out, fmt)
    return death.count


def watch(death: Death) -> None:
    for module, name in CALLS:
        setattr(module, name, death.around(getattr(module, name)))


def files(folder: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def main() -> None:
    src, out, fmt, stride = *sys.argv[1:4], int(sys.argv[4])
    in_child(lambda: convert(src, out, fmt))
    alone = files(out)
    shutil.rmtree(out)
    reader, writer = os.pipe()
    in_child(lambda: os.write(writer, str(moments(src, out, fmt)).encode()))
    total = int(os.read(reader, 99))
    killed, wrong, whole_too_early = 0, [], []
    for moment in range(0, total, stride):
        shutil.rmtree(out, ignore_errors=True)

        def die(moment: int = moment) -> None:
            watch(Death(moment))
            convert(src, out, fmt)

        killed += in_child(die) == signal.SIGKILL
        left = files(out) if os.path.isdir(out) else {}
        if "manifest.json" in left and {n: d for n, d in left.items() if not n.startswith(".")} != alone:
            whole_too_early.append(moment)
        in_child(lambda: convert(src, out, fmt))
        if files(out) != alone:
            wrong.append(moment)
    print(
        json.dumps(
            {"moments": total, "killed": killed, "wrong": wrong, "early": whole_too_early, "files": sorted(alone)}
        )
    )


if __name__ == "__main__":
    main()

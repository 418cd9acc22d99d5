"""Kill `plan`, `work` (several at once) and `finish` at random moments, run them again, and compare the files.

This is a program because it takes a while: python tests/helpers/kill_steps.py [KILLS] [SEED]. It
prints one line of JSON. The suite runs it with few kills.
"""

import gc
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from pictures import encode, photo  # a program begins with its own folder in `sys.path`

#: What the steps import: a process that begins as a fork need not.
PRELOADED = ("dataprep.commands.convert", "dataprep.run.convert", "dataprep.run.work", "dataprep.run.finish",
             "dataprep.images.downscale", "pyarrow.parquet", "forked_workers")  # fmt: skip


def make_source(folder: Path) -> None:
    """Write 100 images, 20 of them broken, so that some shards consist of rejected images."""
    for number in range(100):
        path = folder / ("broken" if number < 20 else f"class {number % 3}") / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"<html>" if number < 20 else encode(photo(number, 160, 120), quality=95))


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Process:
    """A command in a fork of this process, in a session of its own."""

    def __init__(self, *arguments: object) -> None:
        self._outputs = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        self._status: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            for number, file in enumerate(self._outputs, 1):
                os.dup2(file.fileno(), number)
            sys.argv[:] = ["dataprep", *map(str, arguments)]
            from dataprep.__main__ import run

            try:
                run()
            finally:  # the rest of this program is for the parent
                os._exit(70)

    def poll(self) -> int | None:
        """Return the exit status, the negative number of the signal that ended the process, or `None` if it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def communicate(self) -> tuple[str, str]:
        """Wait for the end, and return what was printed to stdout and stderr."""
        deadline = time.monotonic() + 300
        while self.poll() is None:
            if time.monotonic() > deadline:
                os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.002)
        texts = []
        for file in self._outputs:
            with file:
                file.seek(0)
                texts.append(file.read())
        return texts[0], texts[1]

    @property
    def returncode(self) -> int | None:
        return self.poll()


def start(*arguments: object) -> Process:
    return Process(*arguments)


def run(*arguments: object) -> None:
    process = start(*arguments)
    _, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}: {errors}")


class Trial:
    """One output folder, in which steps are killed until `kills` of them died.

    Then all steps run undisturbed.
    """

    def __init__(
        self, source: Path, out: Path, rng: random.Random, durations: dict[str, float]
    ) -> None:
        self.out, self.rng, self.durations = out, rng, durations
        self.plan = (
            "plan",
            "--src",
            source,
            "--out",
            out,
            "--samples-per-shard",
            5,
            "--no-shuffle",
            "--resize-shorter",
            90,
        )
        self.finish = ("finish", out, "--max-rejected", 1, "--workers", 1)
        self.finishes = [self.finish, (*self.finish[:-1], 2)]  # at the same time
        self.killed: Counter[str] = Counter()
        self.failures: list[str] = []

    def works(self) -> list[tuple[object, ...]]:
        if self.rng.random() < 0.5:
            return [
                (
                    "work",
                    self.out,
                    "--claim",
                    "--heartbeat",
                    0.1,
                    "--workers",
                    self.rng.choice((1, 2)),
                )
                for _ in range(3)
            ]
        return [
            ("work", self.out, "--task", f"{task}/3", "--workers", self.rng.choice((1, 2)))
            for task in range(3)
        ]

    def disturb(self, step: str, commands: list[tuple[object, ...]]) -> None:
        """Run commands at the same time, and kill each with SIGKILL at a random moment, the whole group or only it."""
        began = time.monotonic()
        processes = [start(*command) for command in commands]
        moments = [self.rng.random() * self.durations[step] * 1.1 for _ in processes]
        for moment, process in sorted(
            zip(moments, processes, strict=True), key=lambda pair: pair[0]
        ):
            time.sleep(max(0.0, began + moment - time.monotonic()))
            if process.poll() is None:
                with suppress(ProcessLookupError):  # a `WarmProcess` may end at any time
                    (os.killpg if self.rng.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        for process in processes:
            output, errors = process.communicate()
            self.killed[step] += process.returncode == -signal.SIGKILL
            allowed = (0, 3, -signal.SIGKILL) if step == "finish" else (0, -signal.SIGKILL)
            if process.returncode not in allowed or "Traceback" in errors:
                self.failures.append(f"{step}: {process.returncode} {output} {errors}")

    def complete(self) -> dict[str, bytes]:
        run(*self.plan)
        for command in self.works():
            run(*command)
        run(*self.finish)
        return files(self.out)


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    kills, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rng, killed, different, failures = random.Random(seed), Counter(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "photos")
        make_source(source)
        durations = {}
        undisturbed = Trial(source, Path(folder, "undisturbed"), rng, durations)
        for step, commands in (
            ("plan", [undisturbed.plan]),
            ("work", undisturbed.works()[:1]),
            ("finish", [undisturbed.finish]),
        ):
            began = time.monotonic()
            for command in commands:
                process = start(*command)
                process.communicate()
            durations[step] = time.monotonic() - began
        expected = undisturbed.complete()
        trials = 0
        while sum(killed.values()) < kills:
            out = Path(folder, f"out{trials}")
            trial = Trial(source, out, rng, durations)
            for _ in range(2):
                trial.disturb("plan", [trial.plan])
            run(*trial.plan)
            for _ in range(2):
                trial.disturb("work", trial.works())
            trial.disturb("finish", trial.finishes)
            for command in trial.works():
                run(*command)
            trial.disturb("finish", trial.finishes)
            different += trial.complete() != expected
            killed += trial.killed
            failures += trial.failures
            shutil.rmtree(out)
            trials += 1
    print(
        json.dumps(
            {
                "trials": trials,
                "killed": killed,
                "different": different,
                "failures": failures,
                "files": len(expected),
            }
        )
    )


if __name__ == "__main__":
    main()

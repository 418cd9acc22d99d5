"""Which shards one of many tasks writes: `Share`, and how ``--task`` names it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dataprep import storage
from manifests.errors import CallError

#: More tasks than this are a mistake.
MAX_TASKS = 1_000_000


@dataclass(frozen=True)
class Share:
    """One of several equal shares of the shards: those whose number in the plan is `task` modulo `tasks`.

    Attributes:
        task: number of the share, from 0.
        tasks: number of shares.

    """

    task: int
    tasks: int

    def numbers(self, shards: int) -> range:
        """Return the numbers of its shards, if the plan has `shards` of them."""
        return range(self.task, shards, self.tasks)


_TASK = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)
_AUTO = re.compile(r"auto(?:/([0-9]{1,9}))?", re.ASCII)


def parse_task(text: str, environment: Mapping[str, str]) -> Share:
    """Parse the value of ``--task``: ``I/N``, or ``auto`` and ``auto/N`` for what a scheduler sets.

    Args:
        text: the value.
        environment: environment variables of the process.

    Raises:
        CallError: the value is malformed, the task is not one of the tasks, or no scheduler numbers
            this task.

    """
    if match := _TASK.fullmatch(text):
        return _share(
            int(match[1]),
            int(match[2]),
            f"--task {text}",
            "tasks count from 0: the last one of N is N-1/N",
        )
    if not (match := _AUTO.fullmatch(text)):
        raise CallError(
            f"--task {text} is not I/N",
            hint="write 0/8 for the first of 8 tasks, or auto, or auto/8",
        )
    tasks = int(match[1]) if match[1] else None
    if "SLURM_ARRAY_TASK_ID" in environment:
        return _slurm_share(text, environment, tasks)
    if "JOB_COMPLETION_INDEX" in environment:
        index = _integer(environment, "JOB_COMPLETION_INDEX")
        if tasks is None:
            raise CallError(
                "--task auto: JOB_COMPLETION_INDEX is set, but Kubernetes does not tell the number"
                " of tasks",
                hint="write --task auto/N with the number of `completions` of the job",
            )
        return _share(
            index,
            tasks,
            f"--task {text}: JOB_COMPLETION_INDEX={index}",
            f"set `completions: {tasks}`",
        )
    raise CallError(
        f"--task {text}: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set",
        hint="run it in a Slurm array job or in an indexed job of Kubernetes, or write --task I/N",
    )


def _slurm_share(text: str, environment: Mapping[str, str], tasks: int | None) -> Share:
    """Return the share of a task of a Slurm array.

    Tasks are numbered from the first one of the array, or as they are if the user gives the number
    of tasks.
    """
    task = _integer(environment, "SLURM_ARRAY_TASK_ID")
    if tasks is not None:
        return _share(
            task,
            tasks,
            f"--task {text}: SLURM_ARRAY_TASK_ID={task}",
            f"submit with --array=0-{tasks - 1}",
        )
    count, first, last = (
        _integer(environment, f"SLURM_ARRAY_TASK_{name}") for name in ("COUNT", "MIN", "MAX")
    )
    step = (
        _integer(environment, "SLURM_ARRAY_TASK_STEP")
        if "SLURM_ARRAY_TASK_STEP" in environment
        else 1
    )
    if (
        step < 1
        or not first <= task <= last
        or (task - first) % step
        or (last - first) // step + 1 != count
    ):
        raise CallError(
            f"--task auto: the numbers of the Slurm array are not consecutive: {count} tasks from"
            f" {first} to {last}",
            hint="write --task auto/N, which takes the numbers as they are: task 0 to N-1 of N",
        )
    return Share((task - first) // step, count)


def _share(task: int, tasks: int, place: str, hint: str) -> Share:
    if not 0 < tasks <= MAX_TASKS:
        raise CallError(
            f"{place}: there must be 1 to {MAX_TASKS:,} tasks",
            hint="write 0/8 for the first of 8 tasks",
        )
    if not task < tasks:
        raise CallError(f"{place}: there is no task {task} of {tasks}", hint=hint)
    return Share(task, tasks)


def _integer(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise CallError(f"--task auto: {name}={value!r} is not a number", hint="write --task I/N")
    return int(value)


# --- how many tasks there are ---------------------------------------------------------------------


def record_tasks(out: str, tasks: int) -> None:
    """Record the number of tasks next to the temporary files, so that `finish` can tell which ones to run again."""
    path = storage.shared_path(out, "tasks", str(tasks))
    with storage.translate_errors(path, "the file cannot be written"):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def recorded_tasks(out: str) -> int | None:
    """Return the largest recorded number of tasks; `None` if there is none."""
    counts = [
        int(text)
        for text in storage.shared_names(out, "tasks")
        if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII)
    ]
    return max((count for count in counts if 0 < count <= MAX_TASKS), default=None)

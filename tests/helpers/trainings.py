"""Run training scripts in this process or in separate processes, and kill them."""

import io
import os
import runpy
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import torch

ROOT = Path(__file__).parents[2]


def environment():
    """Return the environment of training processes."""
    # With one thread, sums are computed in a fixed order.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def call(command):
    """Run a script, given as a command, and return the finished process.

    A script that needs one process runs in this one, as ``python SCRIPT`` would run it: this saves importing torch and
    DALI again.
    """
    command = list(map(str, command))
    if command[1].endswith(".py"):
        return call_here(command[1:])
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)


def call_here(arguments):
    out, err, status, threads = io.StringIO(), io.StringIO(), 0, torch.get_num_threads()
    script = arguments[0]
    try:
        torch.set_num_threads(1)
        with (
            mock.patch.object(sys, "argv", arguments),
            mock.patch.object(sys, "path", [str(Path(script).parent), *sys.path]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            err.write(f"{error.code}\n")
    finally:
        torch.set_num_threads(threads)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def output_of(command):
    done = call(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_after(step, command):
    """Kill every process of a run as soon as it has printed a step."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    ) as process:
        for line in process.stdout:
            if line.startswith(f"step {step}:"):
                break
        for pid in [process.pid, *descendants(process.pid)]:
            os.kill(pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def descendants(pid):
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [process for child in children for process in (child, *descendants(child))]

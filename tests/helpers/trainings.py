"""Run training scripts in this process or in separate processes, and kill them."""

import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import torch

from helpers.ports import free_ports
from helpers.processes import kill_at_once

ROOT = Path(__file__).parents[2]


def environment():
    """Return the environment of training processes."""
    # With one thread, sums are computed in a fixed order.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def call(command):
    """Run a script, given as a command, and return the finished process.

    A script that needs one process runs in this one, as ``python SCRIPT`` would run it: this saves
    importing torch and DALI again.
    """
    command = list(map(str, command))
    if command[1].endswith(".py"):
        return call_here(command[1:])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=environment(), check=False
    )


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


class Forks:
    """A script in processes that begin as copies of one that has imported torch and DALI, with torchrun's variables.

    With `last_line`, a process that has printed a line with this beginning waits until it is
    killed.

    Attributes:
        processes: the processes, one for each rank.
        stdout: their standard output, line by line.

    """

    def __init__(self, arguments, processes, last_line=None):
        multiprocessing.set_forkserver_preload(PRELOADED)
        context = multiprocessing.get_context("forkserver")
        output, written = context.Pipe(duplex=False)
        with closing(output), closing(written):
            self.stdout = os.fdopen(os.dup(output.fileno()))
            launched = {
                **environment(),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_ports(1)[0]),
            }
            launched |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
            self.processes = []
            for rank in map(str, range(processes)):
                ranks = (
                    {**launched, "RANK": rank, "LOCAL_RANK": rank}
                    if processes > 1
                    else environment()
                )
                process = context.Process(
                    target=run_in_fork, args=(list(map(str, arguments)), ranks, written, last_line)
                )
                process.start()
                self.processes.append(process)

    def kill(self):
        for process in self.processes:
            process.kill()

    def __enter__(self):
        self._timer = threading.Timer(600, self.kill)
        self._timer.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.join()
        self._timer.cancel()
        self.stdout.close()


#: What a script imports; `torch._dynamo` with its first optimizer. None of it starts a thread.
PRELOADED = [
    "torch", "torch.distributed", "torch._dynamo", "loaders.dali.pipeline", "loaders.loader",
    "loaders.resolve", "pyarrow.compute", "pyarrow.parquet",
]  # fmt: skip


def run_in_fork(arguments, environment, stdout, last_line):
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(stdout.fileno(), 1)
    if last_line:
        write = sys.stdout.write
        sys.stdout.write = lambda text: (
            write(text) if not text.startswith(last_line) else write_and_wait(write, text)
        )
    torch.set_num_threads(1)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    runpy.run_path(arguments[0], run_name="__main__")


def write_and_wait(write, text):
    write(f"{text}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


def output_of_forks(arguments, processes):
    with Forks(arguments, processes) as forks:
        printed = forks.stdout.read()
    assert [process.exitcode for process in forks.processes] == [0] * processes, printed
    return printed


def kill_after(step, arguments, processes):
    """Kill every process of a run when the first one has printed a step and waits, and so do the others for it."""
    with Forks(arguments, processes, f"step {step}:") as forks:
        for line in forks.stdout:
            if line.startswith(f"step {step}:"):
                break
        kill_at_once([process.pid for process in forks.processes])
    assert [process.exitcode for process in forks.processes] == [-signal.SIGKILL] * processes

"""Run training scripts in this process or in forks of a warm one, and kill them."""

import io
import re
import runpy
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import torch

from helpers.ports import free_ports
from helpers.processes import kill_at_once
from helpers.warm_python import WarmProcess

ROOT = Path(__file__).parents[2]


def call(arguments):
    """Run a script in this process as `python` would, on one thread; return the finished process."""
    out, err, status, threads = io.StringIO(), io.StringIO(), 0, torch.get_num_threads()
    script, *_ = arguments = [*map(str, arguments)]
    try:
        torch.set_num_threads(1)  # sums are computed in a fixed order
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


def output_of(arguments):
    done = call(arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


BEFORE = """
import os, signal, sys, torch
os.environ.update({environment!r})
torch.set_num_threads(1)
write = sys.stdout.write
def write_and_wait(text):
    write(text)
    if {last_line!r} and text.startswith({last_line!r}):
        write("\\n")
        sys.stdout.flush()
        while True:
            signal.pause()
sys.stdout.write = write_and_wait
"""


def start(python, arguments, processes, last_line=""):
    """Start a script in processes with torchrun's variables; each waits after a line with this beginning."""
    python.executable("torch._dynamo", "pyarrow.compute", "pyarrow.parquet")
    port, started = free_ports(1)[0], []
    for rank in range(processes):
        environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        if processes > 1:
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            environment |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(processes))
            environment |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
        before = BEFORE.format(environment=environment, last_line=last_line)
        started.append(WarmProcess(python, *map(str, arguments), before=before))
    return started


def output_of_forks(python, arguments, processes):
    """Run a script in processes; return what the first one has printed."""
    started = start(python, arguments, processes)
    outputs = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [0] * processes, outputs
    return outputs[0][0]


def losses(output):
    found = re.findall(r"step (\d+): loss ([\d.]+)", output)
    return {int(step): float(loss) for step, loss in found}


def kill_and_resume(python, arguments, folder, *, steps, per_epoch, processes):
    """Check that a run that is killed and resumed ends as one that is not; return what both print, and the step.

    Args:
        arguments: a function that returns the arguments of a script from the checkpoint and options.
        folder: where the checkpoints `complete.pt` and `stopped.pt` are written.
        steps: of the whole run.
        per_epoch: steps of an epoch. The run is killed in the second one.
        processes: the number of processes.

    """
    complete, stopped = folder / "complete.pt", folder / "stopped.pt"
    printed = output_of_forks(python, arguments(complete), processes)
    expected = losses(printed)
    assert list(expected) == list(range(1, steps + 1))
    # All processes wait after the last step, so they die at the same moment.
    last = f"step {per_epoch + 4}:"
    started = start(python, arguments(stopped), processes, last)
    assert next(line for line in started[0].stdout if line.startswith(last))
    kill_at_once([process.pid for process in started])
    assert [process.wait() for process in started] == [-signal.SIGKILL] * processes
    step = torch.load(stopped)["step"]
    assert per_epoch < step < steps
    resumed = output_of_forks(python, arguments(stopped, "--resume"), processes)
    assert losses(resumed) == {number: expected[number] for number in range(step + 1, steps + 1)}
    assert printed.splitlines()[-1] == resumed.splitlines()[-1]
    first, second = torch.load(complete), torch.load(stopped)
    assert first["step"] == second["step"] == steps
    for name, weights in first["model"].items():
        assert torch.equal(weights, second["model"][name]), name
    return printed, resumed, step

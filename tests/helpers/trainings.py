"""Run training scripts in processes of their own, and kill them."""

import os
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(*folders):
    """Return this process's environment, with some folders first on the path of modules."""
    # One thread adds in a fixed order.
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}


def call(command, *folders):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(*folders), check=False)


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
    return [each for child in children for each in (child, *descendants(child))]

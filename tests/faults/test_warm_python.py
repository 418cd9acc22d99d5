"""Programs that run in forks of a warm process."""

from __future__ import annotations

import os
import signal
import subprocess

from helpers.warm_python import WarmPython

REPORT = "import os, sys; print('json' in sys.modules, os.getppid(), *sys.argv[1:])"


def test_a_process_that_was_killed_starts_again():
    """As Ray does with the children of its driver."""
    python = WarmPython("json")
    try:
        executable = python.executable()
        servers = set()
        for _ in range(2):
            done = python.run("-c", REPORT, "a b", check=True)
            imported, server, *arguments = done.stdout.split()
            assert (imported, arguments) == ("True", ["a", "b"])
            ours = subprocess.run(
                [executable, "-B", "-Wignore", "-c", REPORT, "x"],
                capture_output=True,
                text=True,
                check=True,
            )
            assert ours.stdout.startswith("True ")
            servers.add(server)
            os.kill(int(server), signal.SIGKILL)
        assert len(servers) == 2
    finally:
        python.close()

"""A throw-away Slurm cluster of one node on this machine: its own munged, slurmctld and slurmd in one folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from helpers.eventually import eventually
from helpers.ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")


def _path() -> str:
    """Return where programs are: Debian installs daemons where only root looks."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=10000,batch_sched_delay=0,sched_interval=1
KillWait=10
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def reason_to_skip() -> str:
    """Return why there can be no cluster on this machine; an empty string if there can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if missing:
        return f"Slurm is not installed ({', '.join(missing)})"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class Slurm:
    """A running cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for commands of Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": _path()}

    def call(self, *command: object, check: bool = True) -> str:
        """Run a command of Slurm; return its output."""
        words = list(map(str, command))
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        done = subprocess.run(words, env=self.environment, timeout=300, check=False, **output)
        assert not check or done.returncode == 0, f"{command}: {done}\n{self.logs()}"
        return done.stdout.strip()

    def submit(self, *arguments: object) -> str:
        """Submit a job with ``sbatch``; return its number."""
        return self.call("sbatch", "--parsable", *arguments)

    def wait(self, job: str, seconds: float = 300) -> dict[str, str]:
        """Wait for the tasks of a job; return the state and the exit status of each."""
        states = ("--states", "PENDING,RUNNING,COMPLETING,REQUEUED")
        listing = ("squeue", "--noheader", "--jobs", job, *states)
        ended = eventually(lambda: not self.call(*listing), seconds)
        assert ended, f"{self.call('squeue')}\n{self.logs()}"
        lines = self.call("scontrol", "--oneliner", "show", "job", job).splitlines()
        records = [dict(part.partition("=")[::2] for part in line.split()) for line in lines]
        return {
            record.get("ArrayTaskId", ""): f"{record['JobState']} {record['ExitCode']}"
            for record in records
        }

    def start(self, *command: object) -> subprocess.Popen[bytes]:
        """Start a daemon."""
        with open(self.folder / "output", "ab") as output:
            return subprocess.Popen(
                list(map(str, command)), env=self.environment, stdout=output, stderr=output
            )

    def logs(self) -> str:
        """Return the ends of what the daemons have logged."""
        paths = [self.folder / "output", *self.folder.glob("*.log")]
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in paths)


@contextmanager
def cluster() -> Iterator[Slurm]:
    """Start a cluster, and stop all that it started."""
    with ExitStack() as stack:
        # The path of a socket is limited to 107 bytes, and munged wants a folder that only its user
        # can write to.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp")))
        slurm = Slurm(folder)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "key").write_bytes(os.urandom(128))
        (folder / "key").chmod(0o400)
        folder.chmod(0o755)
        names = {"host": socket.gethostname().partition(".")[0], "folder": folder}
        ports = dict(zip(("control_port", "node_port"), free_ports(2), strict=True))
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**names, **ports))
        names = {"key-file": "key", "pid-file": "munge.pid", "socket": "munge.socket"}
        names |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={folder / name}" for option, name in names.items()]
        for command, is_ready in (
            (("munged", "--foreground", *options), (folder / "munge.socket").exists),
            (("slurmctld", "-D", "-i"), lambda: True),
            (("slurmd", "-D"), lambda: "idle" in slurm.call(*_STATES, check=False)),
        ):
            stack.callback(_stop, slurm.start(*command))
            assert eventually(is_ready, 300), slurm.logs()
        yield slurm


_STATES = ("sinfo", "--noheader", "--format", "%t")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)

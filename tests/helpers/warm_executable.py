"""An executable that takes the place of `python`: its programs run in forks of a process that has imported modules.

The executable is a small program that passes its arguments, working directory, environment and open
files to that process over a socket, waits for the exit status of the fork, and ends in the same
way. If it is killed, so is the fork. With other options of Python than those below it becomes an
ordinary interpreter.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NamedTuple

#: What the executable runs. It imports little, because it starts in 15 ms.
_CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
arguments = sys.argv[1:]
program = [*arguments]
while program and (program[0][:2] in ("-u", "-P", "-B", "-W") or program[:2] == ["-X", "utf8={utf8}"]):
    del program[: 1 + (program[0] in ("-W", "-X"))]
if not program or program[0][:1] == "-" and program[0] not in ("-c", "-m"):
    os.execv({python!r}, [{python!r}, *arguments])
files = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)]
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
request = marshal.dumps((program, os.getcwd(), dict(os.environ), files))
rights = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
server.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
server.sendall(request)
for number in files:  # a reader at the other end of a pipe waits for the fork only
    os.close(number)
status = int.from_bytes(server.recv(4), "big", signed=True)
if status < 0:
    import _signal
    if -status != _signal.SIGKILL:
        _signal.signal(-status, _signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


class Program(NamedTuple):
    """What a fork runs."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    files: list[int]


def write_executable(folder: str) -> tuple[str, socket.socket]:
    """Write the executable to a folder, and return its path and the socket that it connects to."""
    address, executable = os.path.join(folder, "socket"), os.path.join(folder, "python")
    for path in (address, executable):  # of an earlier process, which was killed
        with suppress(FileNotFoundError):
            os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    with open(executable, "x", encoding="utf-8") as file:
        file.write(_CLIENT.format(python=sys.executable, utf8=sys.flags.utf8_mode, address=address))
    os.chmod(executable, 0o700)
    return executable, listener


def accept_programs(listener: socket.socket) -> Program:
    """Accept programs until standard input ends; return each in its fork, with its files."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, 0)  # that it ends, which is always reported
    while True:
        if any(file == 0 for file, _ in poll.poll()):
            os._exit(0)
        connection, _ = listener.accept()
        _reap()
        if not os.fork():
            listener.close()
            if program := _start(connection):
                return program
        connection.close()


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _start(connection: socket.socket) -> Program | None:
    """Fork the program, and return it in the fork. This process reports its end."""
    size, files, *_ = socket.recv_fds(connection, 8, 250)
    with connection.makefile("rb") as file:
        program = Program(*marshal.loads(file.read(int.from_bytes(size, "big"))))
    child = os.fork()
    if not child:
        connection.close()
        # First to numbers that no file has at the end.
        free = 1 + max(*files, *program.files)
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, free) for file in files]
        for file in files:
            os.close(file)
        for file, number in zip(moved, program.files, strict=True):
            os.dup2(file, number)
            os.close(file)
        return program
    for file in (0, 1, 2, *files):  # a reader of the output must not wait for this process
        os.close(file)
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection], [], [])[0]:  # the executable was killed
        signal.pidfd_send_signal(ended, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(OSError):
        connection.sendall(status.to_bytes(4, "big", signed=True))
    os._exit(0)

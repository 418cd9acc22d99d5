"""The engine that runs tasks on the machines of a Ray cluster, each as one task of Ray Core.

A sequence of tasks is put into Ray's object store once, and a call sends only a position in it. Ray
runs the tasks of a lost worker or machine again, which is harmless: a task gives the same result
every time. An error that a task raises is its result, so Ray never tries it again.

What Ray prints is suppressed; each thing that can go wrong with the connection is one line.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dataprep.engines.base import (
    Function,
    PooledFunction,
    Result,
    Results,
    Task,
    answer,
    result_of,
)
from dataprep.engines.local import LocalEngine
from manifests.errors import CallError, DatasetError, StoppedError, WorkerDiedError, machine_fault
from manifests.process.program import debugs
from manifests.process.text import one_line, printable

#: Seconds to wait for an answer from the address of a cluster.
_CONNECT_SECONDS = 10.0

#: How often to connect: a cluster forks a process for each client `ray://`, which sometimes dies at
#: once.
_ATTEMPTS = 3

#: Read by Ray when it is imported.
_ENVIRONMENT = {
    "RAY_NUM_REDIS_GET_RETRIES": "2",  # attempts to connect, of up to 40 seconds each
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",  # it prints a stack at SIGTERM
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # silences a warning about this variable
}

_HINT = "start one with `ray start --head`, or give the address of a running one with --address"
AGAIN = "run the same command again; finished shards are kept"


def connect(address: str) -> tuple[Any, bool]:
    """Connect this process to a cluster, unless it already is.

    Return the module `ray`, and whether this call did it.

    Args:
        address: ``"auto"`` for the cluster of this machine or of ``RAY_ADDRESS``, ``HOST:PORT``, or
            ``ray://HOST:PORT``.

    Raises:
        CallError: Ray is not installed, or there is no cluster at this address that this process
            can use.

    """
    ray = _import()
    if ray.is_initialized():
        return ray, False
    _check_answer(_running_cluster(ray) if address == "auto" else address)
    for attempt in range(_ATTEMPTS):
        with _own_signals(), _quiet(ray):
            try:
                level = logging.INFO if debugs() else logging.FATAL
                ray.init(address=address, log_to_driver=debugs(), logging_level=level)
                break
            except Exception as error:
                with suppress(Exception):
                    ray.shutdown()
                if isinstance(error, ConnectionAbortedError) and attempt + 1 < _ATTEMPTS:
                    continue
                reason = _first_line(error)
                raise CallError(
                    f"--address {address}: the Ray cluster cannot be used: {reason}", hint=_HINT
                ) from None
    return ray, True


def _import() -> Any:
    if not debugs():
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise CallError(
            "--engine ray needs the package ray", hint="run `pip install 'dataprep-loaders[ray]'`"
        ) from None
    return ray


def _running_cluster(ray: Any) -> str:
    """Return the address of the cluster that ``RAY_ADDRESS`` names, or that this machine belongs to."""
    try:
        return os.environ.get("RAY_ADDRESS") or str(
            ray._private.services.canonicalize_bootstrap_address("auto")
        )
    except ConnectionError:
        raise CallError(
            "--engine ray: this machine does not belong to a Ray cluster", hint=_HINT
        ) from None


def _check_answer(address: str) -> None:
    """Check that something answers at an address: Ray itself would try for minutes.

    Raises:
        CallError: nothing does, or this is not an address.

    """
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("", "ray") or not (port or parts.scheme):
        raise CallError(
            f"--address {printable(address)} is not an address of a Ray cluster",
            hint="use auto, HOST:PORT (6379 by default) or ray://HOST:PORT (10001 by default)",
        )
    if parts.scheme:
        _check_client()
    reason = unreachable(host, port or 10001)
    if reason:
        raise CallError(
            f"--address {printable(address)}: no Ray cluster answers there ({reason})", hint=_HINT
        )


def _check_client() -> None:
    try:
        import_module("grpc")
    except ImportError:
        raise CallError(
            "--address ray://… needs the package grpcio",
            hint="run `pip install 'dataprep-loaders[ray]'`",
        ) from None


#: The beginning of a connection of HTTP/2, on which gRPC is based: a fixed text and an empty frame
#: of settings.
_HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))


def unreachable(host: str, port: int, seconds: float = _CONNECT_SECONDS) -> str:
    """Return why no server of Ray answers at a TCP port; an empty string if one does."""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return ""
            connection.sendall(_HTTP2_GREETING)
            frame = connection.recv(9, socket.MSG_WAITALL)
    except OSError as error:
        return error.strerror or str(error)
    return "" if frame[3:4] == _HTTP2_GREETING[-6:-5] else "there is another kind of server"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the signal handlers of this program, which `ray.init` replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        with suppress(ValueError):  # not the main thread, where `ray.init` replaces nothing
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Let Ray print nothing while it connects, and no messages of the cluster after that.

    Its libraries in C++ print to the standard error of the process, and its messages would go to
    standard output, between the results of a command.
    """
    if debugs():
        yield
        return
    # Ray has no option for the messages of its raylets ("a worker died"), which it prints even
    # without `log_to_driver`.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    with warnings.catch_warnings(), _no_stderr():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Drop what is written to the standard error of this process, except what the handler of Ctrl-C writes."""
    handler, saved, null = (
        signal.getsignal(signal.SIGINT),
        os.dup(2),
        os.open(os.devnull, os.O_WRONLY),
    )

    def restore_and_interrupt(number: int, frame: Any) -> None:
        os.dup2(saved, 2)
        if callable(handler):
            handler(number, frame)

    if callable(handler) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, restore_and_interrupt)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


@contextmanager
def translate_errors(ray: Any) -> Iterator[None]:
    """Raise an error of Ray itself as one that says what to do."""
    try:
        yield
    except (
        ray.exceptions.RayTaskError
    ) as error:  # our function returns its errors, so it could not be called
        reason = str(error.cause) if getattr(error, "cause", None) else str(error)
        raise StoppedError(
            f"a machine of the Ray cluster cannot run dataprep: {_last_line(reason)}",
            hint="install the same release of dataprep on every machine of the cluster",
        ) from None
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise WorkerDiedError(f"the Ray cluster failed: {_first_line(error)}", hint=AGAIN) from None


def check_connection(ray: Any) -> None:
    """Check that the cluster answers.

    Ray itself ends the process some time after a part that it needs is gone.

    Raises:
        WorkerDiedError: it does not answer.

    """
    if ray.util.client.ray.is_connected():
        return  # a client raises an error by itself
    if reason := _local_part_gone(ray):
        raise WorkerDiedError(f"Ray does not run on this machine any more ({reason})", hint=AGAIN)
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    for _ in range(3):
        reason = unreachable(host, int(port), seconds=5)
        if not reason:
            return
        time.sleep(5)
    raise WorkerDiedError(
        f"the head of the Ray cluster does not answer any more ({reason})", hint=AGAIN
    )


def _local_part_gone(ray: Any) -> str:
    """Return why the raylet, the process of Ray on this machine, does not answer.

    An empty string if it does.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(ray._private.worker.global_worker.node.raylet_socket_name)
        except OSError as error:
            return error.strerror or str(error)
    return ""


def _first_line(error: BaseException) -> str:
    """Return the first line of a message, with the last one if it only introduces a traceback."""
    text = str(error).strip()
    first = next(iter(text.splitlines()), "") or type(error).__name__
    if first.endswith(":"):
        first = f"{first} {_last_line(text)}"
    return one_line(first)


def _last_line(text: str) -> str:
    return one_line(next(reversed(text.strip().splitlines()), ""))


# --- the engine -----------------------------------------------------------------------------------

#: Seconds in which every machine must have answered a check.
_CHECK_SECONDS = 120.0

#: Seconds between looks at whether the cluster still answers, while no task finishes.
_POLL_SECONDS = 5.0

#: Seconds to wait for the workers of a run that is stopped.
_STOP_SECONDS = 10

#: Tasks in flight for each one that can run, so no worker waits for the next task.
_TASKS_PER_SLOT = 2

#: Tasks in flight at least: a cluster that grows on demand may begin with no CPU at all.
_MIN_IN_FLIGHT = 8

#: A task whose worker has ended this often ends the run. Ray would retry it forever.
MAX_ATTEMPTS = 10


class _MachineLeftError(WorkerDiedError):
    """The machine that had to run a task has left the cluster."""


class RayEngine:
    """Runs tasks on the machines of a Ray cluster. See `base.Engine`.

    Args:
        address: the cluster; see `ray_connection.connect`.
        workers: the maximum number of CPUs to use at the same time; `None` means all of the
            cluster.

    Raises:
        CallError: Ray is not installed, or there is no such cluster.

    """

    is_local = False

    def __init__(self, address: str = "auto", workers: int | None = None) -> None:
        self._ray, self._connected = connect(address)
        self._limit = workers
        self._check: Callable[[], None] | None = None
        self._running: list[Any] = []
        self._slots, self._slots_until = 0, 0.0

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The machines of the cluster that have CPUs, as Ray describes them."""
        with translate_errors(self._ray):
            return [
                node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")
            ]

    @property
    def workers(self) -> int:
        """The number of CPUs that tasks may use now."""
        cpus = int(sum(node["Resources"]["CPU"] for node in self.nodes))
        if self._limit is not None:
            cpus = min(cpus, self._limit)
        return max(1, cpus)

    def start(self, module: str) -> None:
        """Do nothing: Ray starts workers when there are tasks."""

    def check(self, function: Callable[[Task], None], argument: Task) -> None:
        """Call a function on each machine now, and in each worker before its first task.

        See `base.Engine.check`.
        """
        self._check = partial(function, argument)
        ray = self._ray
        run = self._put(_do_nothing, None)
        call = ray.remote(num_cpus=0, max_retries=3, retry_exceptions=False)(_call)
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        names = {}
        for node in self.nodes:
            there = call.options(scheduling_strategy=strategy(node["NodeID"], soft=False))
            names[there.remote([run], None)] = node
        with translate_errors(ray):
            done, late = ray.wait(
                list(names), num_returns=max(len(names), 1), timeout=_CHECK_SECONDS
            )
        for reference in done:
            # A machine that leaves the cluster meanwhile will not run tasks.
            with suppress(_MachineLeftError):
                self._result(reference)
        if late:
            node = names[late[0]]
            raise StoppedError(
                f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']}) did not"
                f" answer within {_CHECK_SECONDS:g} seconds",
                hint="check that its file systems answer, or remove it from the cluster",
            )

    def run(
        self, function: Callable[[Task], Result], tasks: Iterable[Task], max_workers: int
    ) -> Results[Result]:
        """Apply a function to each task, with one CPU each, and yield results as they finish.

        See `base.Engine.run`.
        """
        yield from self._run(function, tasks, min(self._limit or max_workers, max_workers), cpus=1)

    def run_with_pool(
        self,
        function: PooledFunction[Task, Result],
        tasks: Iterable[Task],
        max_workers: int,
    ) -> Results[Result]:
        """Do the same with several CPUs for each task, if there are fewer tasks than CPUs."""
        cpus = self._cpus_per_task(tasks, max_workers)
        limit = self._limit
        if limit is not None:
            limit = max(limit // cpus, 1)
        yield from self._run(partial(_run_in_pool, function, cpus), tasks, limit, cpus)

    def _cpus_per_task(self, tasks: Iterable[Any], max_workers: int) -> int:
        if not isinstance(tasks, Sequence) or not tasks or not (nodes := self.nodes):
            return 1
        largest = max(int(node["Resources"]["CPU"]) for node in nodes)
        return max(1, min(min(self.workers, max_workers) // len(tasks), largest))

    def _run(
        self, function: Function, tasks: Iterable[Any], limit: int | None, cpus: int
    ) -> Results[Any]:
        call = self._ray.remote(num_cpus=cpus, max_retries=-1, retry_exceptions=False)(_call)
        # A sequence is sent once, and then the numbers of its tasks.
        shared, arguments = None, iter(tasks)
        if isinstance(tasks, Sequence):
            shared, arguments = tasks, iter(range(len(tasks)))
        run = self._put(function, shared)
        finished = False
        try:
            while True:
                for argument in islice(
                    arguments, max(self._in_flight(limit, cpus) - len(self._running), 0)
                ):
                    self._running.append(call.remote([run], argument))
                if not self._running:
                    break
                reference = self._wait()
                yield self._result(reference)
            finished = True
        finally:
            if not finished:  # an error, an interrupt, or a caller that stopped early
                self._cancel()

    def _put(self, function: Function, tasks: Sequence[Any] | None) -> Any:
        with translate_errors(self._ray):
            return self._ray.put(_Run(function, tasks, self._check, os.getcwd()))

    def _in_flight(self, limit: int | None, cpus: int) -> int:
        """Return how many tasks to give to Ray.

        A cluster may grow and shrink, but asking it takes time.
        """
        now = time.monotonic()
        if now > self._slots_until:
            check_connection(self._ray)
            self._slots, self._slots_until = self.workers // cpus, now + _POLL_SECONDS
        return limit or max(self._slots * _TASKS_PER_SLOT, _MIN_IN_FLIGHT)

    def _wait(self) -> Any:
        """Wait until a task has ended, and return its reference."""
        while True:
            with translate_errors(self._ray):
                done, running = self._ray.wait(self._running, num_returns=1, timeout=_POLL_SECONDS)
            if done:
                self._running = running
                return done[0]
            check_connection(self._ray)

    def _result(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        with translate_errors(self._ray):
            try:
                answered = self._ray.get(reference)
            except (errors.TaskUnschedulableError, errors.NodeDiedError) as error:
                raise _MachineLeftError(one_line(str(error)), hint=AGAIN) from None
        return result_of(*pickle.loads(answered))  # noqa: S301

    def _cancel(self) -> None:
        """Kill the workers that run tasks, and wait until they are gone."""
        running, self._running = self._running, []
        with suppress(Exception):  # the cluster may be gone
            for _ in range(
                _STOP_SECONDS
            ):  # Ray forgets a request that arrives while a worker starts
                for reference in running:
                    self._ray.cancel(reference, force=True)
                if running:
                    _, running = self._ray.wait(running, num_returns=len(running), timeout=1)

    def close(self) -> None:
        """Stop all tasks, and leave the cluster, unless the program was connected to it before."""
        self._cancel()
        if self._connected:
            with suppress(Exception):
                self._ray.shutdown()


class _Run(NamedTuple):
    """What all calls of one run share, in Ray's object store.

    Attributes:
        function: what to apply to each task.
        tasks: the tasks; `None` if each call brings its own.
        check: what a worker calls before its first task.
        folder: working directory of the program, where relative paths begin.

    """

    function: Function
    tasks: Sequence[Any] | None
    check: Callable[[], None] | None
    folder: str


# --- in a worker of the cluster -------------------------------------------------------------------

#: The last run that this worker had a task of, by its reference: unpickling a large plan for each
#: task takes time.
_last: dict[str, _Run] = {}


def _call(shared: list[Any], argument: Any) -> bytes:
    """Run one task of a run; `argument` is its position, or the task itself."""
    return answer(partial(_apply, shared[0]), argument)


def _apply(reference: Any, argument: Any) -> Any:
    if attempt() >= MAX_ATTEMPTS:
        raise WorkerDiedError(
            f"a worker process on {platform.node()} and others before it ended without a result,"
            f" {MAX_ATTEMPTS} times for the same shard, possibly because memory ran out",
            hint=(
                "give Ray fewer CPUs on machines with little memory, and run the same command"
                " again; finished shards are kept"
            ),
        )
    run = _enter(reference)
    if run.tasks is not None:
        argument = run.tasks[argument]
    return run.function(argument)


def attempt() -> int:
    """Return how often the current task was tried before."""
    from ray._private import worker  # there is no public name for it

    core: Any = worker.global_worker.core_worker  # type: ignore[attr-defined]
    return int(core.get_current_task_attempt_number())


def _enter(reference: Any) -> _Run:
    """Return a run. When this worker sees it for the first time, check this machine."""
    import ray

    name = reference.hex()
    if name not in _last:
        with translate_errors(ray):
            run: _Run = ray.get(reference)
        with suppress(
            OSError
        ):  # relative paths mean the same as on the machine of the program, if it has this folder
            os.chdir(run.folder)
        _check_machine(run)
        _last.clear()
        _last[name] = run
    return _last[name]


def _check_machine(run: _Run) -> None:
    try:
        if run.check:
            run.check()
    except Exception as error:
        known = error if isinstance(error, DatasetError) else machine_fault(error)
        if known is None:
            raise
        message = f"machine {platform.node()} of the Ray cluster cannot be used: {known.message}"
        raise type(known)(message, file=known.file, hint=known.hint) from None


def _run_in_pool(function: PooledFunction[Any, Any], cpus: int, task: Any) -> Any:
    with (
        closing(LocalEngine(cpus)) as engine,
        closing(engine.run_with_pool(function, [task], cpus)) as results,
    ):
        return next(results)


def _do_nothing(argument: None) -> None:
    pass

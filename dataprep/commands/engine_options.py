"""The options ``--engine`` and ``--address``, which choose where shards are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import click

from dataprep.commands.console import console
from dataprep.engines import Engine, LocalEngine
from manifests.errors import CallError
from manifests.process.text import plural

EngineName = Literal["local", "ray"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def add_engine_options(function: _Function) -> _Function:
    """Add the options to a command."""
    engine = click.option(
        "--engine",
        type=click.Choice(("local", "ray")),
        default="local",
        show_default=True,
        help=(
            "Where shards are written. local: in processes on this machine. ray: on the machines of"
            " a Ray cluster, which must have the source and OUT at the same paths."
        ),
    )
    address = click.option(
        "--address",
        metavar="ADDRESS",
        help=(
            "With --engine ray: auto, HOST:PORT or ray://HOST:PORT.  [default: auto, the cluster"
            " that this machine belongs to]"
        ),
    )
    return engine(address(function))


def make_engine(engine: EngineName, address: str | None, workers: int | None) -> Engine:
    """Return the engine that the options choose.

    Raises:
        CallError: the options do not fit together, or there is no such cluster.

    """
    if engine == "local":
        if address is not None:
            raise CallError(
                "--address needs --engine ray", hint="add --engine ray, or leave --address out"
            )
        return LocalEngine(workers)
    from dataprep.engines.ray import RayEngine

    ray_engine = RayEngine("auto" if address is None else address, workers)
    cpus = plural(ray_engine.workers, "CPU")
    console.info(f"Ray cluster: {plural(len(ray_engine.nodes), 'machine')}, {cpus}")
    return ray_engine

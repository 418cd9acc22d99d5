"""The command ``loaders simulate``: read the tables, simulate some nodes, and print the table."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from loaders.cache.ahead import least_room
from loaders.cache.layout import layout_of
from loaders.dataset.split import open_splits
from loaders.dataset.tables import SampleTables
from loaders.progress import Upcoming
from loaders.ranks import Ranks
from loaders.samplers import ShuffledSampler
from loaders.samplers.base import index_dtype
from loaders.samplers.choose import planned_order, sampler_columns
from loaders.samplers.order import Batching
from loaders.simulate.model import Cluster, EpochFigures, simulate_epochs
from manifests.errors import CallError
from manifests.process.text import agree, format_bytes, format_duration, plural, printable
from manifests.store import manifest_files

#: Nodes that are simulated, evenly spaced: the others have other samples of the same number.
MOST_NODES = 4
#: Tables that are fetched at a time.
_TABLES_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What was found; sizes in bytes, times in seconds.

    Attributes:
        cluster: the machines.
        simulated: how many of the nodes were simulated.
        sampler: what draws the samples.
        steps: steps of an epoch.
        size: all images of the split.
        space: all of them in a cache.
        start_bytes: manifest and tables that a node fetches before its loaders are built.
        start_requests: the requests for them.
        start_seconds: how long this takes, with reading the tables as fast as this machine did.
        first_batch: when all ranks have their first batch.
        rank_memory: tables and order in the memory of a rank.
        epochs: the epochs.

    """

    cluster: Cluster
    simulated: int
    sampler: str
    steps: int
    size: int
    space: int
    start_bytes: int
    start_requests: int
    start_seconds: float
    first_batch: float
    rank_memory: int
    epochs: tuple[EpochFigures, ...]


def simulate(dataset: str, split: str, cluster: Cluster, window: int | None = None) -> Simulation:
    """Simulate a training run in the order of `ShuffledSampler`.

    Raises:
        CallError: the split is too small for so many ranks, or the cache for their batches.
        DamagedError: the manifest or a table is damaged.

    """
    opened = open_splits(dataset, split)[0]
    begin = time.perf_counter()
    _check_samples(cluster, opened.samples)
    tables = SampleTables(opened)
    sampler = ShuffledSampler(window=window)
    layout = layout_of(opened, tables, ())
    space = int(layout.pages(layout.all_rows()).sum())
    _check_room(cluster, space, opened.samples)
    limited = cluster
    if (cluster.node_disk or 0) >= space:
        limited = replace(cluster, node_disk=None)
    columns = sampler_columns(opened, tables, sampler)
    batching = Batching(cluster.batch_size, "drop", Ranks(0, cluster.ranks), training=True)
    order = planned_order(opened, columns, batching, sampler)
    order.upcoming(0, 0).of_rank(0)  # which draws the first epoch
    seconds = time.perf_counter() - begin
    count = min(cluster.nodes, MOST_NODES)
    upcoming: list[list[Upcoming]] = []
    for number in range(count):
        first = number * cluster.nodes // count * cluster.gpus
        upcoming.append([])
        for rank in range(first, first + cluster.gpus):
            own = replace(batching, ranks=Ranks(rank, cluster.ranks))
            upcoming[-1].append(replace(order, batching=own).upcoming(0, 0))
    manifest = [len(data) for data in manifest_files(opened.manifest).values()]
    sizes = [shard.table.bytes for shard in opened.shards]
    # Each rank reads the manifest, and one of them all tables.
    start_bytes = cluster.gpus * sum(manifest) + sum(sizes)
    seconds += cluster.latency * (1 + math.ceil(len(sizes) / _TABLES_AT_ONCE))
    seconds += start_bytes / cluster.bandwidth
    epochs, first_batch = simulate_epochs(layout, limited, upcoming, seconds)
    places = tables.lazy_columns(("offset", "size", "crc32c"))[1].values()
    arrays = (layout.offsets, layout.sizes, layout.checksums, *places)
    return Simulation(
        cluster=cluster,
        simulated=count,
        sampler=str(order.text),
        steps=order.batches,
        size=int(layout.sizes.sum()),
        space=space,
        start_bytes=start_bytes,
        start_requests=cluster.gpus * len(manifest) + len(sizes),
        start_seconds=seconds,
        first_batch=first_batch,
        # This epoch and the next one.
        rank_memory=sum(each.nbytes for each in arrays)
        + 2 * order.samples * index_dtype(order.samples).itemsize,
        epochs=tuple(epochs),
    )


def _check_samples(cluster: Cluster, samples: int) -> None:
    """Check that a split, of which all samples may be removed, fills a batch of all ranks."""
    batch = cluster.batch_size * cluster.ranks
    if samples < batch:
        raise CallError(
            f"{plural(cluster.ranks, 'rank')} {agree(cluster.ranks, 'needs', 'need')}"
            f" {plural(batch, 'sample')} for a batch, but the split has {samples:,}",
            hint="choose another --split, or lower --batch-size, --gpus or --nodes",
        )


def _check_room(cluster: Cluster, space: int, samples: int) -> None:
    """Check that the cache has room for some batches of all ranks."""
    batch = cluster.batch_size * cluster.ranks
    needed = least_room(space, batch, samples)
    if cluster.node_disk is not None and cluster.node_disk < needed:
        raise CallError(
            f"--node-disk is {format_bytes(cluster.node_disk)}, but batches of {batch:,} samples of"
            f" all ranks need at least {format_bytes(needed)}",
            hint="set --node-disk to more, or --batch-size to less",
        )


def as_text(found: Simulation, dataset: str, price: float) -> str:
    """Return the results as a table; the price is of 1,000 requests."""
    cluster = found.cluster
    nodes = cluster.nodes
    disk = "no limit of the cache"
    if cluster.node_disk is not None:
        disk = f"a limit of {format_bytes(cluster.node_disk)} of the cache"
        if cluster.node_disk >= found.space:
            disk += ", which holds the split"
    lines = [
        f"{printable(dataset)}: {format_bytes(found.size)}, {plural(nodes, 'node')} of"
        f" {plural(cluster.gpus, 'GPU')}, {disk}",
        f"{found.sampler}, batches of {cluster.batch_size:,}: {plural(found.steps, 'step')} an epoch",
        f"start: {format_bytes(found.start_bytes)} in {plural(found.start_requests, 'request')} a"
        f" node, {format_duration(found.start_seconds)}; first batch after"
        f" {format_duration(found.first_batch)}",
        f"memory: {format_bytes(found.rank_memory)} of tables and order in a rank,"
        f" {format_bytes(cluster.gpus * found.rank_memory)} in a node",
        "",
        "epoch    seconds  waiting  stragglers  on disk   a node reads       most"
        "   all nodes read    requests       cost",
    ]
    for number, epoch in enumerate(found.epochs):
        mean = sum(epoch.bytes) / found.simulated
        requests = sum(epoch.requests) / found.simulated * nodes
        stragglers = max(0.0, epoch.waiting - epoch.waiting_alone) / epoch.seconds
        lines.append(
            f"{number:5} {epoch.seconds:10,.1f} {epoch.waiting / epoch.seconds:8.1%}"
            f" {stragglers:11.1%} {epoch.cached:8.1%} {format_bytes(mean):>14}"
            f" {format_bytes(max(epoch.bytes)):>10} {format_bytes(mean * nodes):>16}"
            f" {requests:11,.0f} {requests / 1000 * price:10,.2f}"
        )
    if found.simulated < nodes:
        lines += ["", f"computed for {found.simulated} of {nodes:,} nodes"]
    return "\n".join(lines)

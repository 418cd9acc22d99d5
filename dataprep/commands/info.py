"""``dataprep info``: what is in a dataset."""

from __future__ import annotations

import click

from dataprep.commands.base import Command
from dataprep.humanize import contents, count, size
from manifests.errors import ExitStatus
from manifests.text import printable


@click.command(cls=Command)
@click.argument("out")
@click.option("--json", "as_json", is_flag=True, help="For programs: everything, the count of each class included.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 2**20),
    metavar="N",
    help="Foretell the GPU memory that loading batches of N images takes, and what smaller images would make of it.",
)
def info(out: str, *, as_json: bool, batch_size: int | None) -> ExitStatus:
    """Print what is in a dataset: splits, classes, sizes of images, bytes."""
    import json

    from dataprep.summary import describe

    facts = describe(out, batch_size)
    if as_json:
        click.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return ExitStatus.SUCCESS
    held = f"{count(facts['samples'], 'sample')} in {count(facts['classes'], 'class')}"
    raw = f" raw {'x'.join(map(str, facts['pixels']))}," if "pixels" in facts else ""
    click.echo(f"{out}: {facts['format']},{raw} {held}, {size(facts['bytes'])}")
    for name, split in facts["splits"].items():
        click.echo(f"\n{name}: {contents(split['samples'], split['bytes'], split['shards'])}")
        click.echo(f"  {'':14}" + "".join(f"{word:>10}" for word in split["width"]))
        for word, unit in (("width", "pixels"), ("height", "pixels"), ("size", "bytes")):
            click.echo(f"  {word + ', ' + unit:14}" + "".join(f"{value:>10,}" for value in split[word].values()))
        click.echo(f"  {_counted(split['labels'])}")
        if batch_size:
            _tell_memory(split["gpu_memory"], batch_size)
    if facts["rejected"]:
        click.echo(f"\nrejected: {count(facts['rejected'], 'image')}, see {out}/rejected.jsonl")
    return ExitStatus.SUCCESS


def _tell_memory(memory: dict[str, dict[str, int]] | None, batch_size: int) -> None:
    if memory is None:
        click.echo("  the images' sizes are not all known, so nothing can be foretold of memory")
        return
    ways = next(iter(memory.values()))
    resized = ", or resized to a shorter side of" if len(ways) > 1 else ""
    click.echo(f"  GPU memory of batches of {batch_size:,}, foretold, as the images are{resized}")
    if resized:
        click.echo(f"  {'':14}" + "".join(f"{'' if way == 'as they are' else way:>12}" for way in ways))
    for name, found in memory.items():
        click.echo(f"  {name:14}" + "".join(f"{taken / 2**30:>8.2f} GiB" for taken in found.values()))


def _counted(labels: dict[str, int]) -> str:
    if not labels:
        return "no classes"
    ordered = sorted(labels.items(), key=lambda item: item[1])
    (fewest, least), (_, median), (fullest, most) = ordered[0], ordered[len(ordered) // 2], ordered[-1]
    text = f"images a class: {least:,} ({printable(fewest)}) to {most:,} ({printable(fullest)}), median {median:,}"
    empty = sum(count == 0 for count in labels.values())
    return text + (f"; {count(empty, 'class')} have none" if empty else "")

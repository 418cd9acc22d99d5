"""Options that ``loaders bench``, ``loaders tune`` and ``loaders preview`` share."""

from __future__ import annotations

from collections.abc import Callable

import click

from manifests.process.options import Number

cache_option = click.option(
    "--cache", metavar="DIR", help="Folder on a local disk, if DATASET is in an object store."
)


def require_cache(dataset: str, cache: str | None) -> None:
    """Check that a dataset in an object store comes with ``--cache``.

    Raises:
        CallError: it does not.

    """
    from manifests.process.text import printable
    from manifests.remote.url import refuse_url

    if cache is None:
        refuse_url(
            dataset,
            f"{printable(dataset)} is in an object store, and --cache is missing",
            hint="set --cache to a folder on a local disk, for example --cache /nvme/cache",
        )


def add_loader_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a loader to measure."""
    options = (
        click.argument("dataset"),
        click.option(
            "--transforms",
            required=True,
            metavar="NAME|FILE",
            help="A preset such as imagenet-train, or a YAML file.",
        ),
        click.option(
            "--split", metavar="NAME", default="train", show_default=True, help="The split to read."
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1, 2**20),
            metavar="N",
            help=(
                "Images per batch.  [default: 256; fewer if the images are large or the split is"
                " smaller]"
            ),
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "gpu"]),
            default="auto",
            show_default=True,
            help="What decodes and transforms the images. auto: a GPU if there is one.",
        ),
        cache_option,
        click.option(
            "--model",
            metavar="NAME|FILE:FUNCTION",
            help=(
                "Model that trains on the batches: one of torchvision, such as resnet50, or"
                " script.py:step with a function that takes images and labels."
            ),
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def add_method_options(
    seconds: float, repeats: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that say how long to measure."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option(
            "--repeats",
            type=click.IntRange(1, 100),
            metavar="N",
            default=repeats,
            show_default=True,
            help="Repeats of each measurement.",
        )(command)
        return click.option(
            "--seconds",
            type=Number(0.01, 3600),
            metavar="S",
            default=seconds,
            show_default=True,
            help="Minimum duration of the warm-up and of each repeat.",
        )(command)

    return add

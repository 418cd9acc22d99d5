"""Read images of a source in worker processes, in batches, and apply a function to each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dataprep.containers import SourceImages
from dataprep.engines import Engine
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.progress import Progress
from dataprep.shards.source_image import load_image, start_reading

if TYPE_CHECKING:
    from dataprep.arrays import Int64Array

#: Images of one task.
BATCH = 128

Value = TypeVar("Value")


class ReadTask(NamedTuple):
    """A batch of images to read. The lists have one element per image.

    Attributes:
        rows: rows of the source.
        images: the images in these rows.
        options: how to check and convert the images.
        function: what to compute from an image.
        arguments: what the function takes after the image; `None` if it takes nothing else.

    """

    rows: list[int]
    images: SourceImages
    options: Options
    function: Callable[..., Any]
    arguments: Sequence[tuple[Any, ...]] | None


def read_images(
    images_in: Callable[[Int64Array], SourceImages],
    rows: Int64Array,
    function: Callable[..., Value],
    *,
    options: Options,
    engine: Engine,
    progress: Progress,
    arguments_in: Callable[[Int64Array], Sequence[tuple[Any, ...]]] | None = None,
) -> Iterator[tuple[int, Value | str]]:
    """Read images in worker processes, and yield what a function returns for each of them.

    Args:
        images_in: returns the images in some rows of the source; see `Source.images`.
        rows: rows to read, int64 [N].
        function: a picklable function of a `LoadedImage`. It may raise `Rejected`.
        options: how to check and convert the images.
        engine: runs the workers.
        progress: receives the images that are read.
        arguments_in: returns what the function takes after the images in some rows. If it is given,
            images have a placement.

    Yields:
        The row, and the result of the function or else a text that says why the image is rejected.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """

    def tasks() -> Iterator[ReadTask]:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            arguments = arguments_in(part) if arguments_in else None
            yield ReadTask(
                rows=part.tolist(),
                images=images_in(part),
                options=options,
                function=function,
                arguments=arguments,
            )

    count = -(-len(rows) // BATCH)
    progress.start(len(rows), count)
    with closing(engine.run(read_batch, tasks(), count)) as results:
        for found in results:
            yield from found
            progress.advance("batch", len(found))


def read_batch(task: ReadTask) -> list[tuple[int, Any]]:
    """Return the row and the result of each image of a task."""
    images, results = task.images, []
    for at, pending in enumerate(start_reading(images)):
        try:
            image = load_image(
                images.root,
                images.paths[at],
                images.sizes[at],
                task.options,
                images.locations[at],
                pending=pending,
                placed=task.arguments is not None,
            )
            arguments = task.arguments[at] if task.arguments else ()
            result = task.function(image, *arguments)
        except Rejected as error:
            result = str(error)
        results.append((task.rows[at], result))
    return results

"""Progress bars on stderr, shown only if that is a terminal. Each implements `dataprep.progress.Progress`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from dataprep.report.pictures import Pictures
    from dataprep.shards import ShardResult


class _Bar:
    """A progress bar that closes at the end of a ``with`` block."""

    unit = ""

    def __init__(self, description: str | None = None) -> None:
        self._bar: Any = None
        self._description = description

    def start(self, total: int) -> None:
        """Show the bar; `total` is the number of units."""
        from tqdm import tqdm

        self._bar = tqdm(
            desc=self._description, total=total, unit=self.unit, smoothing=0.1, disable=None, dynamic_ncols=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class ShardsBar(_Bar):
    """Counts finished shards."""

    unit = " shards"

    def advance(self, result: object) -> None:
        """Count one finished shard."""
        del result
        self._bar.update()


class PicturesBar(_Bar):
    """Counts decoded images."""

    unit = " images"

    def advance(self, result: Pictures) -> None:
        """Count the images of one part."""
        self._bar.update(len(result.rows))


class ImagesBar(_Bar):
    """Shows images/s, MB/s and the remaining time of this run, without the shards of earlier runs."""

    unit = " images"

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def advance(self, result: ShardResult) -> None:
        """Count the images and bytes of one finished shard."""
        if result.resumed and not self._bar.disable:
            # `initial` keeps images of earlier runs out of the rate and the remaining time.
            self._bar.initial += result.conversion.images
            self._bar.n += result.conversion.images
            self._bar.last_print_n = self._bar.n
            self._bar.refresh()
            return
        self._bytes += result.conversion.bytes
        self._bar.update(result.conversion.images)
        seconds = self._bar.format_dict["elapsed"]
        if seconds:
            self._bar.set_postfix_str(f"{self._bytes / seconds / 1e6:,.0f} MB/s")

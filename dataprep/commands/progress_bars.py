"""Progress bars on stderr, shown only if that is a terminal. Each implements `dataprep.progress.Progress`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataprep.shards import ShardResult


class ShardsBar:
    """Counts finished shards."""

    def __init__(self) -> None:
        self._bar: Any = None

    def start(self, total: int) -> None:
        """Show the bar; `total` is the number of shards."""
        self._bar = _make_bar(total, " shards")

    def advance(self, result: object) -> None:
        """Count one finished shard."""
        del result
        self._bar.update()

    def __enter__(self) -> ShardsBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class ImagesBar:
    """Shows images/s, MB/s and the remaining time of this run, without the shards of earlier runs."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._bytes = 0

    def start(self, total: int) -> None:
        """Show the bar; `total` is the number of images."""
        self._bar = _make_bar(total, " images")

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

    def __enter__(self) -> ImagesBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def _make_bar(total: int, unit: str) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, smoothing=0.1, disable=None, dynamic_ncols=True)

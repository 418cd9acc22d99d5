"""`ClipSampler`: batches of clips, which are rows with the same value of a column.

A clip is a video or a tracklet, and its rows are its frames. A *window* is what a batch takes of
it: `length` frames, each `stride` frames after the one before. With ``length=4, stride=2``::

    frames of a clip    0 1 2 3 4 5 6 7 8 9 10
    jitter=True           1   3   5   7             one window, at a random place
    jitter=False        0   2   4   6               all windows: every frame once
                          1   3   5   7
                                        8   10      filled up with frames that are not valid
                                          9

The order of the clips is a plan of another sampler, to which each clip, or each window without
`jitter`, is one sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from loaders.arrays import Bools
from loaders.options import require_int_field
from loaders.samplers.base import (
    ORDER_VERSION,
    Fit,
    OwnSampler,
    Plan,
    Rows,
    Sampler,
    Traits,
    check_column_name,
)
from loaders.samplers.draws import count_within, group, random_words, read_codes, value_at
from loaders.samplers.shuffled import SequentialSampler, ShuffledSampler
from loaders.transforms.base import check_bool
from manifests.errors import CallError
from manifests.process.text import agree, plural, shown


class ClipError(CallError):
    """Rows of the split cannot be frames of a clip.

    Attributes:
        rows: the rows.

    """

    def __init__(self, message: str, *, rows: list[int], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.rows = rows


@dataclass(frozen=True, slots=True)
class ClipSampler(OwnSampler):
    """Batches of clips: windows of frames of videos or tracklets.

    Images of a batch are [B, T, C, H, W], with B clips of T = `length` frames, in the order of
    their frames. All frames of a clip get the same random values, so the same crop. The label is
    the clip's, [B]; any other field has a value for each frame, [B, T], or is a list of lists.
    ``"valid"`` is false for frames that only fill up a window. `batch_size` counts frames: it is
    B x T.

    Args:
        length: T, frames in a window.
        stride: step from a frame of a window to the next one, in frames of the dataset.
        by: column of the sample tables that names the clip.
        frame: column of integers that orders the frames of a clip.
        clips_per_batch: B on one rank. `None` means ``batch_size / length``.
        jitter: for training. An epoch has each clip once, in a random order, and of each a window
            at a random place. With `False`, an epoch has every frame of the split once, in the
            order of the clips: the windows of a clip follow each other, and the frames in between
            come in windows of their own.
        short: how to treat clips that are shorter than a window, which spans
            ``(length - 1) * stride + 1`` frames. ``"pad"`` repeats the last frame, ``"loop"``
            begins the clip again, ``"refuse"`` raises an error.
        gaps: ``"refuse"`` raises an error if the frame numbers of a clip are further apart than at
            another place of it, because a frame is missing. ``"allow"`` takes the frames that are
            there.

    Raises:
        CallError: an argument is wrong; the message names it. `loaders.build` raises it if two rows
            of a clip have the same frame number, or a row has none.

    """

    length: int = 8
    stride: int = 1
    by: str = "clip"
    frame: str = "frame"
    clips_per_batch: int | None = None
    jitter: bool = True
    short: Literal["pad", "refuse", "loop"] = "pad"
    gaps: Literal["allow", "refuse"] = field(default="allow", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("length", "stride"):
            require_int_field(self, name, 1)
        if self.clips_per_batch is not None:
            require_int_field(self, "clips_per_batch", 1)
        for name in ("by", "frame"):
            check_column_name(name, getattr(self, name))
        check_bool("jitter", self.jitter)
        if self.short not in ("pad", "refuse", "loop"):
            raise CallError(f"short must be 'pad', 'refuse' or 'loop', got {shown(self.short)}")
        if self.gaps not in ("allow", "refuse"):
            raise CallError(f"gaps must be 'allow' or 'refuse', got {shown(self.gaps)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column that names the clip, and the column of the frame numbers."""
        return (self.by, self.frame)

    @property
    def traits(self) -> Traits:
        """What a loader knows about the sampler."""
        return Traits(draws=self.jitter, by=self.by, fixed="of whole clips")

    @property
    def span(self) -> int:
        """Frames of a clip from the first to the last one of a window."""
        return (self.length - 1) * self.stride + 1

    def on_one_rank(self, world_size: int) -> ClipSampler:
        """Return the sampler that gives the global batches of several ranks to one rank."""
        if self.clips_per_batch is None:
            return self
        return replace(self, clips_per_batch=self.clips_per_batch * world_size)

    def _fitted(self, fit: Fit) -> Plan:
        length = self.length
        clips = self.clips_per_batch
        plan = self.plan_of(ShuffledSampler() if self.jitter else SequentialSampler(), fit)
        # A loader reads an evaluation of less than a batch as one batch.
        if fit.batch_size == plan.samples:
            return plan
        if clips is not None and fit.batch_size != clips * length:
            raise CallError(
                f"batch_size={fit.batch_size}, but ClipSampler makes batches of {clips} x {length}"
                " frames",
                hint=f"set batch_size={clips * length}",
            )
        return plan

    def plan_of(self, sampler: Sampler, fit: Fit) -> ClipPlan:
        """Return the plan of windows of the clips in the order of a sampler of clips.

        Raises:
            CallError: the columns are not the columns of clips, or a batch is no number of clips.

        """
        if fit.batch_size % self.length:
            raise CallError(
                f"batch_size={fit.batch_size} counts frames, but is not a multiple of"
                f" length={self.length}",
                hint=f"set batch_size to the number of clips times {self.length}",
            )
        clips = _find_clips(self, fit)
        _check_short(self, clips, fit)
        return ClipPlan(self, clips, sampler, fit)


@dataclass(frozen=True, slots=True, eq=False)
class Clips:
    """The frames of all clips.

    Attributes:
        rows: the rows, clip after clip, each in the order of its frames: int64 [samples].
        starts: where each clip starts among them: int64 [clips].
        sizes: frames of each clip: int64 [clips].

    """

    rows: Rows
    starts: Rows
    sizes: Rows


def _find_clips(sampler: ClipSampler, fit: Fit) -> Clips:
    """Return the clips of a split.

    Raises:
        CallError: a row has no frame number, two rows have the same one, or a frame is missing.

    """
    clips = group(read_codes(fit.columns, sampler.by, fit.samples))
    read_codes(fit.columns, sampler.frame, fit.samples)  # every row has a value
    numbers = np.asarray(fit.columns[sampler.frame])
    # Integers with missing values elsewhere may be read as floats.
    if numbers.dtype.kind not in "iuf" or (numbers != np.floor(numbers)).any():
        raise CallError(
            f"column {sampler.frame!r} must have integers, which number the frames of a clip, but"
            f" has for example {value_at(numbers, 0)!r}",
            hint="choose another column with frame=",
        )
    sizes = clips.sizes
    clip_of = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((numbers[clips.members], clip_of))
    rows = clips.members[order].astype(np.int64)
    steps = np.diff(numbers[rows].astype(np.int64))
    within = np.diff(clip_of) == 0
    double = np.flatnonzero(within & (steps == 0))
    if len(double):
        pair = rows[double[0] : double[0] + 2].tolist()
        raise ClipError(
            f"clip {value_at(fit.columns[sampler.by], pair[0])!r} has the frame number"
            f" {numbers[pair[0]]:g} twice",
            rows=pair,
            hint="give each frame of a clip its own number, or name the clips apart with by=",
        )
    if sampler.gaps == "refuse" and within.any():
        usual = np.full(len(sizes), np.iinfo(np.int64).max)
        np.minimum.at(usual, clip_of[1:][within], steps[within])
        wide = np.flatnonzero(within & (steps > usual[clip_of[1:]]))
        if len(wide):
            pair = rows[wide[0] : wide[0] + 2].tolist()
            raise ClipError(
                f"clip {value_at(fit.columns[sampler.by], pair[0])!r} has no frame between"
                f" {numbers[pair[0]]:g} and {numbers[pair[1]]:g}; {plural(len(wide), 'gap')} in all",
                rows=pair,
                hint='set gaps="allow" to take the frames that are there',
            )
    return Clips(rows, clips.starts[:-1], sizes)


def _check_short(sampler: ClipSampler, clips: Clips, fit: Fit) -> None:
    short = np.flatnonzero(clips.sizes < sampler.span)
    if sampler.short == "refuse" and len(short):
        row = int(clips.rows[clips.starts[short[0]]])
        raise ClipError(
            f"{plural(len(short), 'clip')} {agree(len(short), 'has', 'have')} fewer frames than the"
            f" {sampler.span} that a window spans, for example"
            f" {value_at(fit.columns[sampler.by], row)!r}, which has {clips.sizes[short[0]]}",
            rows=[row],
            hint='set short="pad" or short="loop", or a smaller length or stride',
        )


class ClipPlan:
    """Windows of clips, in the order of a plan of clips. Implements `ClippedPlan`."""

    order_version = ORDER_VERSION

    def __init__(self, sampler: ClipSampler, clips: Clips, order: Sampler, fit: Fit) -> None:
        """Fit the order of the clips; see `ClipSampler.plan_of`."""
        self._sampler = sampler
        self._clips = clips
        self._seed = fit.seed
        self._length = sampler.length
        #: Of each sample of the order, a clip or a window of one: the clip, and the window's number.
        self._clip = np.arange(len(clips.sizes))
        self._window = np.zeros(0, np.int64)
        if not sampler.jitter:
            block = sampler.stride * sampler.length
            full, rest = np.divmod(clips.sizes, block)
            windows = full * sampler.stride + np.minimum(rest, sampler.stride)
            self._clip = np.repeat(self._clip, windows)
            self._window = count_within(windows)
        firsts = clips.rows[clips.starts[self._clip]]
        columns = {}
        for name in order.columns:
            columns[name] = fit.columns[name][firsts]
        own = replace(
            fit, columns=columns, samples=len(firsts), batch_size=fit.batch_size // self._length
        )
        self._order = own.plan(order)
        self._names_order = not isinstance(order, (ShuffledSampler, SequentialSampler))

    @property
    def samples(self) -> int:
        """Frames in an epoch over all ranks."""
        return self._order.samples * self._length

    @property
    def frames(self) -> int:
        """Frames of a clip in a batch; see `ClippedPlan`."""
        return self._length

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the order, and one about clips that are too short, if there are any."""
        notes = tuple(getattr(self._order, "notes", ()))
        short = int(np.count_nonzero(self._clips.sizes < self._sampler.span))
        if not short:
            return notes
        filled = {"pad": "their last frame repeats", "loop": "they begin again"}
        return (
            *notes,
            f"{short:,} of {plural(len(self._clips.sizes), 'clip')} {agree(short, 'has', 'have')}"
            f" fewer frames than the {self._sampler.span} that a window spans;"
            f" {filled[self._sampler.short]}",
        )

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for ``explain()``."""
        sizes = self._clips.sizes
        sampler = self._sampler
        first = (
            f"Column {sampler.by!r} has {plural(len(sizes), 'clip')} of {sizes.min():,} to"
            f" {sizes.max():,} frames, median {np.median(sizes):,.0f}."
        )
        if self._names_order:
            return (first, "The samples of the next lines are clips.", *self._order.lines)
        if sampler.jitter:
            return (first, "An epoch has one window of each clip, at a random place.")
        return (first, f"An epoch has every frame once, in {plural(len(self._clip), 'window')}.")

    def batch(self, epoch: int, number: int) -> Rows:
        """Return the rows of a global batch, window after window; see `Plan.batch`."""
        clips, places = self._places(epoch, number)
        sizes = self._clips.sizes[clips][:, None]
        stride = self._sampler.stride
        last = places[:, :1] + (sizes - 1 - places[:, :1]) // stride * stride
        inside = places % sizes if self._sampler.short == "loop" else np.minimum(places, last)
        rows: Rows = self._clips.rows[self._clips.starts[clips][:, None] + inside]
        return rows.ravel()

    def present(self, epoch: int, number: int) -> Bools:
        """Return which rows of a global batch do not fill up a window; see `ClippedPlan`."""
        clips, places = self._places(epoch, number)
        present: Bools = places < self._clips.sizes[clips][:, None]
        return present.ravel()

    def _places(self, epoch: int, number: int) -> tuple[Rows, Rows]:
        """Return the clips of a global batch, and the places of the frames in them, [clips, length]."""
        chosen = self._order.batch(epoch, number)
        clips = self._clip[chosen]
        sampler = self._sampler
        if sampler.jitter:
            room = np.maximum(self._clips.sizes[clips] - sampler.span, 0)
            words = random_words(len(clips), self._seed, epoch, number, _PLACES)
            starts = (words % (room + 1).astype(np.uint64)).astype(np.int64)
        else:
            block, phase = np.divmod(self._window[chosen], sampler.stride)
            starts = block * sampler.stride * sampler.length + phase
        return clips, starts[:, None] + np.arange(sampler.length) * sampler.stride


# What the draw is for: the last number of its key. Other draws of an order have fewer numbers.
_PLACES = 0

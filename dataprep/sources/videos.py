"""Frames of videos: a source of videos becomes a source of the frames that the options choose.

Videos are found as images are, by folders, patterns, lists and tables, and have labels, splits and
columns as images have. Then each row is replaced by a row for each of the frames.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataprep import storage
from dataprep.arrays import Float64Array
from dataprep.containers import location_table
from dataprep.images.base import Rejected
from dataprep.options import JPEG_BYTES_PER_PIXEL, SourceOptions
from dataprep.progress import Progress
from dataprep.sources.base import CLIP, FRAME, Integers, RejectedRow, Source
from dataprep.sources.scan import has_images_below, seeking
from manifests.errors import CallError, SourceError
from manifests.files import VIDEO_SUFFIXES
from manifests.process.text import agree, plural
from manifests.schema import UNREADABLE

#: Column of a frame beside its clip, which is the path of the video, and its number from 0: seconds
#: after the first frame.
TIME = "time"

_CHOOSE = "choose frames with --fps 5 (frames in a second), --every 8 or --all-frames of `dataprep convert`"

#: Rows of a list in which videos are looked for if no frames are chosen.
_LOOKED_AT = 1000


def refuse_unfitting(src: str, options: SourceOptions) -> None:
    """Say why nothing was found in a folder: no frames are chosen of its videos, or it has none.

    Raises:
        CallError: it is so.

    """
    # A path in an archive is no folder.
    if not storage.is_folder(src):
        return
    has_images = has_images_below(src, [""])
    with seeking(VIDEO_SUFFIXES):
        has_videos = has_images_below(src, [""])
    if has_videos and not (has_images or options.frames):
        raise CallError(f"--src {src} contains videos and no images", hint=_CHOOSE)
    if options.frames and not has_videos:
        raise CallError(
            f"{options.frames} is for videos, but {src} contains none",
            hint="leave out the option, or check --src",
        )


def with_frames(source: Source, options: SourceOptions, progress: Progress | None = None) -> Source:
    """Return the frames that the options choose of each video of a source.

    A source of images stays as it is if the options choose none. `progress` receives the videos
    whose frames are counted, as shards.

    Raises:
        CallError: the source has videos, and the options do not choose frames, or the other way
            round; or the labels are not labels of videos.
        SourceError: the source has columns that frames need, or is not on a file system.

    """
    if not options.frames:
        first = source.path.slice(0, _LOOKED_AT)
        if source.location is None and pc.any(_are_videos(first)).as_py():
            name = first.filter(_are_videos(first))[0]
            raise CallError(f"{source.root} lists videos, such as {name}", hint=_CHOOSE)
        return source
    others = source.path.filter(pc.invert(_are_videos(source.path)))
    if source.location is not None or len(others):
        example = f", such as {others[0]}" if len(others) else ""
        raise CallError(
            f"{options.frames} is for videos, but {source.root} contains images{example}",
            hint="leave out the option, or give the videos alone",
        )
    labels = source.labels
    if labels.is_placed or labels.others:
        raise CallError(
            f"{source.root} has labels of the type {source.label_type}, or several images in a"
            " sample, which are about one image, not about the frames of a video",
            hint="set --label-type class or none",
        )
    for name in (CLIP, FRAME, TIME):
        if name in source.extra.column_names:
            raise SourceError(
                f"it has a column {name!r}, which frames of videos have",
                file=source.root,
                hint="rename the column or the part of --pattern",
            )
    if "://" in source.root or pc.any(pc.match_substring(source.path, "://")).as_py():
        raise SourceError(
            "videos are read from file systems only", file=source.root, hint="copy them to a disk"
        )
    return _expand(source, options, progress) if len(source) else source


def _are_videos(path: pa.Array) -> pa.Array:
    names = "|".join(sorted(suffix[1:] for suffix in VIDEO_SUFFIXES))
    return pc.match_substring_regex(path, rf"(?i)\.({names})$")


def _expand(source: Source, options: SourceOptions, progress: Progress | None) -> Source:
    from dataprep.containers.videos import scan_videos  # few sources need it

    paths, sizes = source.path.to_pylist(), source.size.tolist()
    readable = [row for row, size in enumerate(sizes) if size != UNREADABLE]
    places = [os.path.join(source.root, paths[row]) for row in readable]
    if progress:
        progress.start(None, len(readable))
    found = {}
    scanned = scan_videos(places, [sizes[row] for row in readable])
    for row, found[row] in zip(readable, scanned, strict=True):
        if progress:
            video = found[row]
            progress.advance(paths[row], 0 if isinstance(video, Rejected) else len(video.times))
    rejected: list[RejectedRow] = []
    rows, frames, seconds, keys, bytes_of_frame = [], [], [], [], []
    total = interlaced = 0
    for row, path in enumerate(paths):
        video = found.get(row, Rejected("unreadable", "the file cannot be read"))
        if isinstance(video, Rejected):
            rejected.append({"source": path, "reason": video.reason, "detail": video.detail})
            continue
        if video.damage:
            rejected.append({"source": path, "reason": "truncated", "detail": video.damage})
        rows.append(row)
        frames.append(choose_frames(video.times, options))
        seconds.append(video.times[frames[-1]])
        keys.append(f"{video.codec} {video.width} {video.height}".encode())
        bytes_of_frame.append(int(video.width * video.height * JPEG_BYTES_PER_PIXEL))
        total += len(video.times)
        interlaced += video.interlaced
    rejected = [*source.rejected, *rejected]
    if not rows:
        return replace(source, table=source.table.slice(0, 0), rejected=tuple(rejected))
    # The video of each frame.
    of = np.repeat(np.arange(len(rows)), [*map(len, frames)])
    taken = replace(source, table=source.table.take(pa.array(np.array(rows)[of])))
    number = pa.array(np.concatenate(frames))
    digits = pc.utf8_lpad(number.cast(pa.large_string()), 6, "0")
    slash = pa.scalar("/", pa.large_string())
    own = {CLIP: taken.path, FRAME: number, TIME: pa.array(np.concatenate(seconds))}
    extra = dict(zip(taken.extra.column_names, taken.extra.columns, strict=True))
    location = location_table(
        taken.path,
        "video",
        position=number,
        length=pa.array(taken.size),
        key=pa.array(keys, pa.binary()).take(pa.array(of)),
    )
    taken = taken.with_columns(
        path=pc.binary_join_element_wise(taken.path, digits, slash),
        size=np.array(bytes_of_frame, np.int64)[of],
        location=location,
        group=of,
        extra=pa.table({**extra, **own}),
    )
    notices = [
        f"{plural(len(rows), 'video')}: {len(of):,} of {plural(total, 'frame')} ({options.frames})"
    ]
    if interlaced:
        notices.append(
            f"{plural(interlaced, 'video')} {agree(interlaced, 'is', 'are')} interlaced: a frame has"
            " the lines of two moments"
        )
    if rejected:
        examples = [f"{each['source']}: {each['detail']}" for each in rejected[:3]]
        notices.append(
            f"{plural(len(rejected), 'video')} {agree(len(rejected), 'is', 'are')} damaged or not"
            f" read: {'; '.join(examples)}"
        )
    layout = f"{source.layout} of videos"
    taken = replace(taken, layout=layout, rejected=tuple(rejected))
    return taken.with_notices(*notices)


def choose_frames(times: Float64Array, options: SourceOptions) -> Integers:
    """Return the numbers of the frames to take, ascending.

    Args:
        times: when each frame is shown, in seconds, from 0.
        options: `every`, `all_frames`, or `fps`: at each time 0, 1/FPS, 2/FPS and so on, the frame
            that is shown then.

    """
    if options.fps is None:
        return np.arange(0, len(times), options.every or 1)
    # Times are rounded to the unit of the video, such as milliseconds.
    slack = min(0.001, 0.1 / options.fps)
    # The last frame is shown for as long as the one before.
    end = times[-1] + max(3 * slack, times[-1] - times[max(0, len(times) - 2)])
    # The number of the first moment that is not before each frame, and not before the end.
    moments = np.ceil((np.append(times, end - slack) - slack) * options.fps)
    return np.flatnonzero(moments[:-1] < moments[1:])

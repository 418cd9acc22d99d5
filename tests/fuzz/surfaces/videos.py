"""Videos: bytes are changed anywhere, and in the headers of containers more often."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from helpers.videos import make_video

from fuzz import mutate
from fuzz.checks import Case, require
from fuzz.sources import Made, Source, each_row

_KINDS = ("h264.mp4", "h264.avi", "hevc.mkv", "vp9.webm", "av1.mp4", "mpeg4.avi", "turned.mp4")
_FRAMES = 6

#: Bytes that have the headers of the containers.
_HEADER = 1200


@cache
def _made(kind: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return make_video(Path(folder, kind), kind, frames=_FRAMES).read_bytes()


def _videos(rng: Random) -> Case:
    kind = rng.choice(_KINDS)
    data = bytearray(_made(kind))
    if rng.random() < 0.5:
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(min(_HEADER, len(data)))] = rng.choice((0, 1, 127, 255))
    else:
        data = bytearray(mutate.mutate_bytes(rng, bytes(data)))
    options = rng.choice((["--all-frames"], ["--every", "2"], ["--fps", "1000"]))
    return {
        f"cat/a{Path(kind).suffix}": bytes(data),
        "dog/b.mp4": _made("h264.mp4"),
        "options": json.dumps(options).encode(),
    }


def _check(case: Case, row: dict[str, Any], made: Made) -> None:
    clip, _, number = row["source"].rpartition("/")
    require(clip in case and row["clip"] == clip, f"there is no video {clip}")
    require(row["frame"] == int(number), f"frame {row['frame']} of {row['source']}")
    require(row["time"] >= 0, f"time {row['time']}")


SURFACES = {"video": Source(_videos, each_row(_check))}

"""Small videos of moving photographs, and what a decoder returns that begins at the first frame."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.reformatter import Interpolation

from helpers.photographs import photograph

#: Name of a video: codec, pixels, options of the encoder, and others of `make_video`.
KINDS: Mapping[str, tuple[str, str, dict[str, str], dict[str, Any]]] = {
    "h264.mp4": ("libx264", "yuv420p", {"bf": "3"}, {}),
    "open-gop.mp4": ("libx264", "yuv420p", {"x264-params": "open-gop=1:keyint=36"}, {}),
    "refresh.mp4": ("libx264", "yuv420p", {"x264-params": "intra-refresh=1:keyint=36"}, {}),
    "h264.mov": ("libx264", "yuv420p", {"bf": "3"}, {"rate": Fraction(30000, 1001)}),
    "h264.avi": ("libx264", "yuv420p", {"bf": "3"}, {}),
    "hevc.mkv": (
        "libx265",
        "yuv420p",
        {"x265-params": "keyint=36:bframes=3:open-gop=1:log-level=none:pools=1"},
        {},
    ),
    "hevc10.mp4": ("libx265", "yuv420p10le", {"x265-params": "log-level=none:pools=1"}, {}),
    "vp8.webm": ("libvpx", "yuv420p", {"lag-in-frames": "8", "auto-alt-ref": "1"}, {}),
    "vp9.webm": ("libvpx-vp9", "yuv420p", {"cpu-used": "8", "lag-in-frames": "8"}, {}),
    "av1.mp4": ("libsvtav1", "yuv420p", {"preset": "12"}, {}),
    "mpeg4.avi": ("mpeg4", "yuv420p", {"bf": "2"}, {}),
    "mjpeg.mov": ("mjpeg", "yuvj420p", {}, {}),
    "variable.mp4": ("libx264", "yuv420p", {"bf": "2"}, {"is_variable": True}),
    "turned.mp4": ("libx264", "yuv420p", {}, {"turn": 90}),
    "odd.mkv": ("libx264", "yuv444p", {}, {"size": (161, 121)}),
    "interlaced.mp4": ("libx264", "yuv420p", {"x264-params": "interlaced=1:tff=1"}, {}),
    "delayed.mp4": ("libx264", "yuv420p", {"bf": "3"}, {"first": 7}),
    "plain.mov": ("libx264", "yuv420p", {"bf": "3"}, {"flags": "disable_chpl"}),
    "gray.mkv": ("ffv1", "gray", {}, {}),
}

#: Frames of a video: more than between two entries.
FRAMES = 80


def make_video(path: Path, kind: str = "h264.mp4", *, frames: int = FRAMES) -> Path:
    """Write a video of one of `KINDS`: a part of a photograph moves by a few pixels a frame."""
    codec, pixels, options, others = KINDS[kind]
    rate, (width, height) = others.get("rate", 30), others.get("size", (160, 128))
    path.parent.mkdir(parents=True, exist_ok=True)
    # What describes the frames is before them, unless a test changes it.
    flags = others.get("flags", "faststart")
    with av.open(str(path), "w", options={"movflags": flags}) as out:
        stream: Any = out.add_stream(codec, rate=rate, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        stream.codec_context.gop_size = 36
        if turn := others.get("turn"):
            stream.set_display_rotation(turn)
        unit, time = 1 / Fraction(rate), others.get("first", 0)
        if others.get("is_variable"):
            unit = stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        photo = photograph("astronaut")
        for number in range(frames):
            shown = np.roll(photo, (number * 3, number * 5), (0, 1))[:height, :width]
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown), format="rgb24")
            picture = picture.reformat(format=pixels)
            picture.pts, picture.time_base = time, unit
            time += 20 + number * 37 % 60 if others.get("is_variable") else 1
            out.mux(stream.encode(picture))
        out.mux(stream.encode(None))
    return path


def with_box(data: bytes, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return a QuickTime file with another content of a box, such as ``"moov/trak/edts/elst"``.

    The boxes around it get their new sizes; offsets of frames before it stay right.
    """
    if not path:
        return change(data)
    first, _, rest = path.partition("/")
    out, at = b"", 0
    while at < len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + size]
        if name == first.encode():
            body = with_box(body, rest, change)
        out += struct.pack(">I4s", len(body) + 8, name) + body
        at += size
    return out


def with_reference(video: bytes, path: Path) -> bytes:
    """Return a QuickTime file whose frames are in another file, at the end of an alias record."""
    name, place = path.name.encode(), os.fsencode(path)
    alias = bytes(50) + bytes([len(name)]) + name.ljust(63, b"\0") + bytes(16)
    alias += struct.pack(">HH16xHH", 1, 1, 2, len(place)) + place + bytes(len(place) % 2)
    alias = (alias + struct.pack(">HH", 0xFFFF, 0)).ljust(160, b"\0")
    entry = struct.pack(">I4sI", len(alias) + 12, b"alis", 0) + alias
    references = struct.pack(">II", 0, 1) + entry
    empty = with_box(video, "mdat", lambda frames: bytes(len(frames)))
    return with_box(empty, "moov/trak/mdia/minf/dinf/dref", lambda _: references)


def decoded(path: Path) -> Iterator[tuple[float, np.ndarray]]:
    """Decode all frames from the first one on: seconds after the first one, and upright pixels."""
    with av.open(str(path)) as video:
        start = None
        for frame in video.decode(video=0):
            flags = Interpolation.BILINEAR | Interpolation.BITEXACT
            pixels = frame.reformat(format="rgb24", interpolation=flags).to_ndarray()
            if start is None:
                start = frame.time
            yield frame.time - start, np.rot90(pixels, frame.rotation // 90)

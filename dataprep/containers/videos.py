"""Frames of videos. FFmpeg (PyAV) reads and decodes them in a process of its own, as it may crash or be kept busy.

A frame is known by its number in the order in which a video is shown. It is decoded from the last
*entry* before it: a frame such that no frame that is shown after it refers to an earlier one. So
its picture is the one that a decoder returns which begins at the first frame, in whatever order
frames are read. The bits of a frame decide whether it is an entry, because a file may mark any frame
as a key frame. Without entries, and in AVI, whose times cannot be trusted, decoding begins at the
first frame.

Functions below `STEPS` run in the process that decodes.
"""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dataprep.containers.base import Location
from dataprep.images.base import Rejected
from dataprep.images.isolated import IsolatedProcess, Limits
from manifests.errors import CallError, SourceVanishedError
from manifests.records import record

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dataprep.arrays import AnyArray, Float64Array, Int64Array

#: What a video begins with, at a byte: the name that FFmpeg has for the format.
_FORMATS = (
    (4, (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"), "mov"),
    (0, (b"\x1a\x45\xdf\xa3",), "matroska"),
    (8, (b"AVI ",), "avi"),
)

#: Codecs that are decoded, none of which opens other files: FFmpeg's names of the decoders.
_CODECS = (
    *("h264", "hevc", "vp8", "vp9", "libdav1d", "av1"),
    *(
        "mpeg4",
        "msmpeg4v2",
        "msmpeg4",
        "h263",
        "mpeg1video",
        "mpeg2video",
        "mjpeg",
        "prores",
        "ffv1",
    ),
)

#: Pixels of a frame, a little more than 8192 x 4320, and frames of a video, at most.
MAX_FRAME_PIXELS, MAX_FRAMES = 36 << 20, 1 << 23

#: Memory of the decoder itself, and for each pixel: codecs refer to up to 16 frames.
_BASE_MEMORY, _PIXEL_MEMORY = 512 << 20, 64
#: CPU time of a step, and what takes a second at most: bytes to list, pixels to decode.
_BASE_SECONDS, _BYTES_PER_SECOND, _PIXELS_PER_SECOND = 10, 10 << 20, 10_000_000

MODULE = "dataprep.containers.videos"


@record
class Video:
    """What a video contains, as its packets say; nothing of it is decoded.

    Attributes:
        codec: FFmpeg's name.
        width: in pixels, as stored.
        height: in pixels, as stored.
        times: when each frame is shown, in seconds after the first one, float64 [n].
        interlaced: whether a frame has the lines of two moments.
        damage: what is wrong behind the last frame; empty if nothing is.

    """

    codec: str
    width: int
    height: int
    times: Float64Array
    interlaced: bool = False
    damage: str = ""


class VideoReader:
    """Reads frames of a video. Implements `ContainerReader`; an image is a PPM.

    The next frame is fast to read; for any other one, decoding begins at the entry before it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fault: Rejected | None = None

    def read(self, location: Location, size: int, data: Buffer | None = None) -> bytes:  # noqa: ARG002
        """Return a frame; see `ContainerReader`. Nothing is read in advance."""
        if os.stat(self._path).st_size != location.length:
            raise SourceVanishedError(
                f"the video had {location.length} bytes when the source was scanned, but has another"
                " size now",
                file=self._path,
                hint="convert or plan again with --overwrite when no program writes to the source",
            )
        if self._fault is not None:
            raise self._fault
        _, width, height = location.key.split()
        pixels, number = int(width) * int(height), location.position
        limits = Limits(
            memory=_BASE_MEMORY + _PIXEL_MEMORY * pixels,
            seconds=_seconds(location.length) + (number + 1) * pixels // _PIXELS_PER_SECOND,
        )
        values, content = _call(DECODER, "frame", self._path, limits, number=number)
        if "fault" in values:  # the process would end again at the next frame
            self._fault = Rejected(values["fault"], values["detail"])
            raise self._fault
        return content


def _seconds(size: int) -> int:
    return _BASE_SECONDS + size // _BYTES_PER_SECOND


def _call(
    process: IsolatedProcess, step: str, path: str, limits: Limits, **settings: Any
) -> tuple[Mapping[str, Any], bytes]:
    """Apply a step to a video. ``"fault"`` of the result says why the process ended, if it did."""
    if find_spec("av") is None:
        raise Rejected("unsupported", f"a video needs av; {INSTALL}")
    try:
        values, content = process.call(step, b"", {"path": path, **settings}, limits)
    except Rejected as error:
        return {"fault": error.reason, "detail": error.detail}, b""
    except RuntimeError as error:  # the process has ended by itself
        return {"fault": "corrupt", "detail": str(error)}, b""
    if "rejected" in values:
        raise Rejected(*values["rejected"])
    return values, content


INSTALL = "install it: pip install 'dataprep-loaders[video]'"

#: The process of this worker.
DECODER = IsolatedProcess(MODULE)


# --- what videos contain --------------------------------------------------------------------------


def scan_videos(paths: Sequence[str], sizes: Sequence[int]) -> Iterator[Video | Rejected]:
    """Yield what each of some videos contains, or why it is rejected, by their sizes in bytes.

    Raises:
        CallError: the package that reads videos is not installed.

    """
    if find_spec("av") is None:
        raise CallError("videos need the package av", hint=INSTALL)
    own = threading.local()
    processes: list[IsolatedProcess] = []

    def scan(path: str, size: int) -> Video | Rejected:
        if not hasattr(own, "process"):
            own.process = IsolatedProcess(MODULE)
            processes.append(own.process)
        # The packets of a long video are also kept in memory.
        limits = Limits(memory=_BASE_MEMORY + 2 * size, seconds=_seconds(size))
        values, content = _call(own.process, "scan", path, limits)
        if "fault" in values:
            return Rejected(values["fault"], values["detail"])
        return Video(times=np.frombuffer(content, np.float64), **values["video"])

    workers = min(len(os.sched_getaffinity(0)), len(paths) // 4 + 1)
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(scan, paths, sizes)
    finally:
        # After Ctrl-C, the others are not counted.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.stop()


# --- in the process that decodes ------------------------------------------------------------------


class _Damage(NamedTuple):
    """What ended decoding: a packet, by its number as in `_Packets.numbers`, and what is wrong with it."""

    packet: int
    detail: str


class _Packets(NamedTuple):
    """The packets that have a frame to show, in the order in which the frames are shown.

    Attributes:
        times: time of each frame in units of the stream, int64 [n].
        numbers: place of its packet in the file, int64 [n].
        entries: frames at which decoding can begin, ascending; the first frame is one.
        damage: as in `Video`.

    """

    times: Int64Array
    numbers: Int64Array
    entries: Int64Array
    damage: str


class _Opened:
    """A video that is open, and a decoder at a place in it.

    Attributes:
        stamp: path, size and modification time of the file.
        stream: FFmpeg's stream, and `codec` its decoder.

    """

    def __init__(self, path: str) -> None:
        """Open a file and read the times of its packets.

        Raises:
            Rejected: it is no video that can be decoded.

        """
        # Opening a named pipe would block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file = os.fdopen(handle, "rb")
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Rejected("unreadable", "not a regular file")
        self.stamp = path, status.st_size, status.st_mtime_ns
        start = self._file.read(16)
        names = [name for at, marks, name in _FORMATS if start[at:].startswith(marks)]
        if not names:
            raise Rejected(
                "not-an-image", f"not a video in MP4, MOV, Matroska, WebM or AVI; {_MOVE}"
            )
        self._format = names[0]
        self._open()
        # The times in an AVI are wrong if frames are not stored in the order in which they are shown.
        self._is_timed = self._format != "avi"
        self.packets = self._list_packets()
        #: What ended decoding that began at an entry.
        self._damage: dict[int, _Damage] = {}
        self._entry, self._last = -1, -1
        self._current: Any = None
        self._frames: Iterator[tuple[int, Any]] = iter(())

    def _open(self) -> None:
        """Open the file, with the decoder before its first frame."""
        import av

        self._file.seek(0)
        # FFmpeg gets an open file and the name of one format: it neither guesses nor opens others.
        options = {"codec_whitelist": ",".join(_CODECS), "protocol_whitelist": "none"}
        self._container = av.open(
            self._file, "r", format=self._format, metadata_errors="replace", options=options
        )
        streams = []
        for each in self._container.streams.video:
            if not each.disposition & each.disposition.attached_pic:  # a cover
                streams.append(each)
        if not streams:
            raise Rejected("corrupt", "the file has no video, or ends before it")
        self.stream: Any = streams[0]
        self.codec: Any = self.stream.codec_context
        if self.codec is None or self.codec.codec.name not in _CODECS:
            raise Rejected("unsupported", "the video has a codec that is not decoded here")
        _check_picture(self.codec)
        self.codec.thread_count = 1
        # Frames may be larger than the header states, but not many times as large.
        most = (self.codec.width + 256) * (self.codec.height + 256)
        self.codec.options = {**_STRICT, "max_pixels": str(most)}

    def _list_packets(self) -> _Packets:
        times, keys, numbers = list[int](), list[bool](), list[int]()
        fault, before = "", 0
        for number, packet, found in self._faulty_packets():
            if found and not fault:
                fault, before = found, len(times)
            if packet.is_corrupt:
                break
            if not packet.size or packet.is_discard or not _is_shown(self.codec, packet):
                continue
            if len(times) == MAX_FRAMES:
                raise Rejected("too-large", f"the limit is {MAX_FRAMES:,} frames")
            time = packet.pts if self._is_timed else packet.dts
            if time is None:
                self._is_timed, time = False, number
            times.append(time)
            keys.append(packet.is_keyframe and _is_entry(self.codec, packet))
            numbers.append(number)
        if not times:
            raise Rejected("corrupt", fault or "the video has no frames")
        stamps, damage = np.array(times, np.int64), ""
        if fault:
            last = (stamps[:before].max(initial=stamps[0]) - stamps.min()) * self.stream.time_base
            damage = f"at {float(last):.2f} s, after {before} frames: {fault}"
        self._is_timed &= len(np.unique(stamps)) == len(stamps)
        order = np.argsort(stamps, kind="stable")
        if not self._is_timed:
            places = np.arange(len(order), dtype=np.int64)
            return _Packets(stamps[order], places, places[:1], damage)
        # All frames that are stored before an entry are shown before it.
        is_entry = (np.array(keys) & (np.maximum.accumulate(stamps) == stamps))[order]
        places = np.array(numbers, np.int64)[order]
        return _Packets(stamps[order], places, _thinned(np.flatnonzero(is_entry)), damage)

    def _faulty_packets(self) -> Iterator[tuple[int, Any, str]]:
        """Yield the number of each packet, the packet, and what is wrong with it or before it."""
        with _logs() as logs:
            for number, packet in enumerate(self._container.demux(self.stream)):
                yield number, packet, _fault_in(logs) or _CUT * packet.is_corrupt

    def seconds(self) -> Float64Array:
        """Return when each frame is shown, after the first one."""
        times, unit = self.packets.times, self.stream.time_base
        seconds: Float64Array = (times - times[0]) * unit.numerator / unit.denominator
        return seconds

    def read(self, number: int) -> AnyArray:
        """Return a frame, upright, uint8 [H, W, 3].

        Raises:
            Rejected: it cannot be decoded.

        """
        times, numbers, entries, _ = self.packets
        if number >= len(times):
            raise Rejected("truncated", f"the video has only {len(times)} frames now")
        entry = int(entries[np.searchsorted(entries, number, side="right") - 1])
        damage, frame = self._damage.get(entry), None
        if damage is None or numbers[number] < damage.packet:
            if self._entry != entry or self._last > number:
                self._begin(entry)
            while self._last < number:
                self._last, self._current = next(self._frames, (len(times), None))
            if self._last == number:
                frame = self._current
            damage = self._damage.get(entry)
        if frame is None:
            why = "is not in what the video decodes to"
            if damage is not None and numbers[number] >= damage.packet:
                why = f"is lost: {damage.detail}"
            at = self.seconds()[number]
            raise Rejected("corrupt", f"frame {number}, at {at:.2f} s, {why}")
        return _upright(frame)

    def _begin(self, entry: int) -> None:
        """Put a new decoder before an entry: an old one may remember what was damaged before.

        If FFmpeg does not find the entry, the decoder is before the first frame.
        """
        self._open()
        packets = self._container.demux(self.stream)
        self._entry, self._last, self._current = entry, entry - 1, None
        if entry:
            time = int(self.packets.times[entry])
            self._container.seek(time, stream=self.stream)
            first = next(packets, None)
            packets = chain((first,), packets)
            if first is None or first.pts != time:
                self._open()
                packets, self._last = self._container.demux(self.stream), -1
        self._frames = self._decode(packets, self._last + 1)

    def _decode(self, packets: Iterable[Any], begun: int) -> Iterator[tuple[int, Any]]:
        """Yield frames with their numbers, from one on, up to a packet that is damaged."""
        numbers, shown = self.packets.numbers, 0
        number = int(numbers[begun])
        for packet in packets:
            frames, fault = self._decode_packet(packet)
            if fault and self._is_timed:
                self._damage[self._entry] = _Damage(number, fault)
            for frame in frames:
                at = shown
                if self._is_timed:
                    at = self._number_of(frame)
                if not 0 <= at < len(numbers):
                    continue
                if frame.is_corrupt and not fault:
                    fault = "the decoder reports an error in it"
                    number = int(numbers[at])
                    break
                shown += 1
                # The frames before a damaged packet do not need it.
                if not (fault and self._is_timed) or numbers[at] < number:
                    yield at, frame
            if fault:
                if not self._is_timed:
                    number = shown
                self._damage[self._entry] = _Damage(number, fault)
                return
            number += 1

    def _decode_packet(self, packet: Any) -> tuple[list[Any], str]:
        """Return the frames that the decoder returns, and what is wrong with the packet.

        If something is wrong, the decoder returns all that it has.
        """
        from av.error import FFmpegError

        frames, fault = list[Any](), _CUT * packet.is_corrupt
        with _logs() as logs:
            try:
                if not fault:  # the last packet is empty: the decoder returns what it still has
                    frames = self.codec.decode(packet if packet.size else None)
            except FFmpegError as error:
                fault = describe(error)
            fault = fault or _fault_in(logs)
            if fault:
                with suppress(FFmpegError):
                    frames += self.codec.decode(None)
        return frames, fault

    def _number_of(self, frame: Any) -> int:
        """Return the number of a frame, by its time; -1 if it is not one to show."""
        times = self.packets.times
        if frame.pts is None:
            return -1
        at = int(np.searchsorted(times, frame.pts))
        if at == len(times) or times[at] != frame.pts:
            return -1
        return at


#: Frames from an entry to the next one, at least: a decoder takes some time to begin.
_MIN_STEP = 32


def _thinned(entries: Int64Array) -> Int64Array:
    """Return entries that are not too close, and the first frame."""
    kept = [0]
    for entry in entries.tolist():
        if entry >= kept[-1] + _MIN_STEP:
            kept.append(entry)
    return np.array(kept, np.int64)


_MOVE = "`ffmpeg -i FILE -c copy FILE.mkv` moves what other formats have into one of them"
_CUT = "the file ends within a frame"

#: Damaged data is an error, and no picture is made up for it.
_STRICT = {"err_detect": "crccheck+bitstream+buffer+explode"}

#: Transfers of a high dynamic range, and primaries close to sRGB's, by their numbers in H.273.
_HDR, _PRIMARIES = {16: "PQ", 18: "HLG"}, (0, 1, 2, 4, 5, 6, 7)

#: Fields of two moments in a frame: FFmpeg's numbers of orders of fields.
_INTERLACED = (2, 3, 4, 5)


def _check_picture(codec: Any) -> None:
    """Refuse frames that are too large, or have colors that would look pale.

    Raises:
        Rejected: they are.

    """
    pixels = codec.width * codec.height
    if not 0 < pixels <= MAX_FRAME_PIXELS:
        raise Rejected(
            "too-large",
            f"frames of {codec.width}x{codec.height} pixels; the limit is {MAX_FRAME_PIXELS:,}",
        )
    if codec.color_trc in _HDR or codec.color_primaries not in _PRIMARIES:
        colors = _HDR.get(codec.color_trc, f"the primaries {codec.color_primaries} of ITU-T H.273")
        raise Rejected("unsupported", f"a video with {colors}; convert it to BT.709 first")


@contextmanager
def _logs() -> Iterator[list[Any]]:
    """Collect what FFmpeg reports in this thread."""
    from av import logging

    logging.set_level(logging.INFO)
    logging.set_skip_repeated(False)
    with logging.Capture() as logs:
        yield logs


def _fault_in(logs: list[Any]) -> str:
    """Return the first error of these reports, and forget them."""
    from av import logging

    fault = ""
    for level, _, text in logs:
        # FFmpeg makes up missing parts of a picture, which is no error to it.
        if level <= logging.ERROR or text.startswith("concealing"):
            fault = fault or " ".join(text.split())[:200]
    logs.clear()
    return fault


def _is_shown(codec: Any, packet: Any) -> bool:
    """Return whether a packet has a frame to show; in VP8, some only have one to refer to."""
    return codec.codec.name != "vp8" or bool(memoryview(packet)[0] & 0x10)


def _is_entry(codec: Any, packet: Any) -> bool:
    """Return whether frames from this one on, in the order in which they are shown, refer to no earlier one."""
    name, data = codec.codec.canonical_name, memoryview(packet)
    if name in ("h264", "hevc"):
        return _is_intra_access(name, data, codec.extradata or b"")
    if name == "vp8":
        return not data[0] & 1
    if name == "vp9":
        # Frame marker, profile, whether it shows an earlier frame, whether it is no key frame.
        has_bit_between = data[0] >> 4 & 3 == 3
        return data[0] >> 6 == 2 and not data[0] >> (2 - has_bit_between) & 3
    if name == "av1":
        return _is_av1_key(data)
    return name in ("mjpeg", "prores")


#: NAL units with a part of a picture, and with a picture at which decoding begins.
_PICTURES = {"h264": (range(1, 6), range(5, 6)), "hevc": (range(32), range(16, 24))}
#: The byte of the record in the header of a stream that has the length of lengths.
_LENGTH_BYTE = {"h264": 4, "hevc": 21}


def _is_intra_access(name: str, data: memoryview, header: bytes) -> bool:
    pictures, entries = _PICTURES[name]
    if len(header) <= _LENGTH_BYTE[name] or header[0] != 1:
        return False  # with start codes
    width, at = (header[_LENGTH_BYTE[name]] & 3) + 1, 0
    while at + width < len(data):
        length, first = int.from_bytes(data[at : at + width], "big"), data[at + width]
        kind = first >> 1 & 0x3F
        if name == "h264":
            kind = first & 0x1F
        if kind in pictures:
            return kind in entries
        at += width + length
    return False


#: OBUs of AV1: the header of a sequence, of a frame, and a frame with its header.
_SEQUENCE, _FRAME_HEADERS = 1, (3, 6)


def _is_av1_key(data: memoryview) -> bool:
    at, has_sequence = 0, False
    while at < len(data) and data[at] & 2:  # with a size
        kind, has_extension = data[at] >> 3 & 15, data[at] >> 2 & 1
        at, size, shift = at + 1 + has_extension, 0, 0
        while at < len(data):
            size |= (data[at] & 127) << shift
            at, shift, more = at + 1, shift + 7, data[at] & 128
            if not more:
                break
        has_sequence |= kind == _SEQUENCE
        if kind in _FRAME_HEADERS:
            # No earlier frame is shown, it is a key frame, and it is shown.
            return has_sequence and at < len(data) and data[at] & 0xF0 == 0x10
        at += size
    return False


def _upright(frame: Any) -> AnyArray:
    """Return a frame as RGB, turned as the file says, uint8 [H, W, 3]."""
    from av.video.reformatter import Interpolation

    # The same bytes on every CPU.
    flags = Interpolation.BILINEAR | Interpolation.BITEXACT
    pixels: AnyArray = frame.reformat(format="rgb24", interpolation=flags).to_ndarray()
    for each in frame.side_data:
        if each.type.name != "DISPLAYMATRIX":
            continue
        # x' = a x + c y, y' = b x + d y
        a, b, _, c, d = struct.unpack_from("=5i", bytes(each))
        if not (b == c == 0 or a == d == 0):
            raise Rejected("unsupported", "a video that is turned by other than a right angle")
        if a == d == 0:
            pixels, a, d = pixels.swapaxes(0, 1), c, b
        if d < 0:
            pixels = pixels[::-1]
        if a < 0:
            pixels = pixels[:, ::-1]
    return pixels


def describe(error: Exception) -> str:
    """Return the text of an error of FFmpeg."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    log = getattr(error, "log", None)
    if log:
        text = f"{text}: {log[2]}"
    return " ".join(text.split())[:200]


#: The video that is open.
_kept: dict[str, _Opened] = {}


def scan(_: bytes, path: str) -> tuple[dict[str, Any], bytes]:
    """Return what a video contains: the fields of `Video`, and the times."""
    opened = _Opened(path)
    codec, times = opened.codec, opened.seconds()
    video = {
        "codec": codec.codec.canonical_name,
        "width": codec.width,
        "height": codec.height,
        "interlaced": codec.field_order in _INTERLACED,
        "damage": opened.packets.damage,
    }
    return {"video": video}, times.tobytes()


def frame(_: bytes, path: str, number: int) -> tuple[dict[str, Any], bytes]:
    """Return a frame as a PPM; or why it is rejected, while the video stays open."""
    status = os.stat(path)
    opened = _kept.get(path)
    if opened is None or opened.stamp != (path, status.st_size, status.st_mtime_ns):
        _kept.clear()
        opened = _kept[path] = _Opened(path)
    try:
        pixels = opened.read(number)
    except Rejected as error:
        return {"rejected": (error.reason, error.detail)}, b""
    height, width, _channels = pixels.shape
    return {}, b"P6 %d %d 255\n" % (width, height) + pixels.tobytes()


#: Functions by name, for `dataprep.images.isolated`.
STEPS: Mapping[str, Callable[..., tuple[dict[str, Any], bytes]]] = {"scan": scan, "frame": frame}

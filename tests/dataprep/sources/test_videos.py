"""Frames of videos: which are chosen, that each is the right one, and what happens to damaged videos."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import struct
import zipfile
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from helpers.datasets import flip, rejected_of, rows_of, run_steps, shards_of
from helpers.examples import examples
from helpers.photographs import photograph
from helpers.rows import evaluate, read_rows
from helpers.shards import stored_samples
from helpers.videos import FRAMES, KINDS, decoded, make_video, with_box, with_reference
from PIL import Image

from dataprep.containers import Location
from dataprep.containers.videos import DECODER, VideoReader, scan_videos
from dataprep.images.base import Rejected
from dataprep.options import SourceOptions
from dataprep.sources.videos import choose_frames
from manifests.errors import SourceVanishedError


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    """A function that returns a video of a kind, which is made once."""
    folder = tmp_path_factory.mktemp("videos")

    def find(kind):
        path = folder / kind
        return path if path.exists() else make_video(path, kind)

    return find


@pytest.fixture
def make(videos, tmp_path):
    """A function that copies videos into a folder, by their paths in it."""

    def make(paths, root="source"):
        for path, kind in paths.items():
            (tmp_path / root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(videos(kind), tmp_path / root / path)
        return tmp_path / root

    return make


CLASSES = {"cat/a.mp4": "h264.mp4", "cat/b.avi": "mpeg4.avi", "dog/c.webm": "vp9.webm"}


def open_video(path):
    """Return what a video contains, and a function that returns the pixels of a frame."""
    size = path.stat().st_size
    (video,) = scan_videos([str(path)], [size])
    if isinstance(video, Rejected):
        raise video
    key, reader = f"{video.codec} {video.width} {video.height}".encode(), VideoReader(str(path))

    def read(number):
        data = reader.read(Location(str(path), "video", number, size, key), 0)
        return np.asarray(Image.open(io.BytesIO(data)))

    return video, read


def images_of(dataset):
    """Return the images of a dataset by clip and number of the frame."""
    found = {}
    for sample, data in stored_samples(dataset):
        found[sample.extra["clip"], sample.extra["frame"]] = Image.open(io.BytesIO(data))
    return found


# --- the right frame ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_the_one_of_a_decoder_that_begins_at_the_first(videos, kind):
    video, read = open_video(videos(kind))
    expected = [*decoded(videos(kind))]
    assert len(video.times) == len(expected) == FRAMES
    assert video.interlaced == (kind == "interlaced.mp4")
    if not kind.endswith(".avi"):  # whose times a decoder does not know
        np.testing.assert_allclose(video.times, [time for time, _ in expected], atol=1e-6)
    numbers = [*range(FRAMES), *random.Random(0).sample(range(FRAMES), 20)]
    for number in numbers:
        np.testing.assert_array_equal(read(number), expected[number][1], str(number))


def test_a_turned_video_is_upright_as_opencv_shows_it(videos):
    _, read = open_video(videos("turned.mp4"))
    opencv = cv2.VideoCapture(str(videos("turned.mp4")))
    _, pixels = opencv.read()
    pixels = pixels[..., ::-1].astype(int)
    assert pixels.shape == read(0).shape == (160, 128, 3)
    assert np.abs(pixels - read(0)).mean() < 4


def test_a_long_video_is_decoded_from_the_entry_before(videos, monkeypatch, tmp_path):
    from dataprep.containers import videos as module

    path = make_video(tmp_path / "long.mp4", frames=400)
    opened, seen = module._Opened(str(path)), []
    decode = opened._decode_packet
    monkeypatch.setattr(opened, "_decode_packet", lambda packet: seen.append(1) or decode(packet))
    opened.read(395)
    assert len(seen) < 45
    for number in range(300, 310):  # the next frames do not begin again
        opened.read(number)
    assert len(seen) < 45 + 36 + 20


@pytest.mark.parametrize(("options", "expected"), read_rows(__file__, "chosen frames"))
def test_frames_are_chosen_by_their_times(options, expected):
    options = SourceOptions(**evaluate(f"dict({options})"))
    for times in (np.arange(90) / 30, np.round(np.arange(90) / 30, 3)):
        assert choose_frames(times, options).tolist() == [*evaluate(expected)]
    # A frame that is shown for long is taken once.
    times = np.array([0, 0.1, 2.5, 2.6])
    assert choose_frames(times, SourceOptions(fps=1)).tolist() == [0, 1]


# --- conversions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["--transcode png", "--resize-shorter 64 --quality 30"])
def test_videos_become_clips_with_the_labels_of_their_folders(
    make, convert, invoke, tmp_path, options
):
    """The bytes depend on neither workers nor steps."""
    source = make(
        {f"{split}/{path}": CLASSES[path] for split in ("train", "val") for path in CLASSES}
    )
    given = ("--every", 20, "--samples-per-shard", 5, *options.split())
    convert(source, tmp_path / "one", *given, "--workers", 1)
    convert(source, tmp_path / "two", *given, "--workers", 2)
    steps = run_steps(invoke, "--src", source, *given, out=tmp_path / "steps")
    first = [shard.read_bytes() for shard in shards_of(tmp_path / "one")]
    assert len(first) == 6
    for other in (tmp_path / "two", steps):
        assert [shard.read_bytes() for shard in shards_of(other)] == first
    for row in rows_of(tmp_path / "one"):
        split, name, _ = row["clip"].split("/")
        assert (row["split"], row["class"]) == (split, name)
        assert row["source"] == f"{row['clip']}/{row['frame']:06d}"
        assert row["time"] == pytest.approx(row["frame"] / 30, abs=1e-3)
    images = images_of(tmp_path / "one")
    assert {clip for clip, _ in images} == {
        f"{split}/{path}" for split in ("train", "val") for path in CLASSES
    }
    assert len(images) == 2 * 3 * 4
    for (clip, number), image in images.items():
        if "png" in options:
            expected = [*decoded(source / clip)][number][1]
            np.testing.assert_array_equal(np.asarray(image), expected)
        else:
            assert image.size == (80, 64)


@pytest.mark.parametrize("options", [(), ("--split-by", "clip"), ("--split-by", "label")])
def test_splits_have_whole_videos(make, convert, tmp_path, options):
    source = make({f"{name}/{number}.mp4": "h264.mp4" for name in "ab" for number in range(4)})
    share = 0.5 if "label" in options else 0.25
    convert(source, tmp_path / "out", "--every", 10, "--val-fraction", share, *options)
    clips = {"train": set(), "val": set()}
    for row in rows_of(tmp_path / "out"):
        clips[row["split"]].add(row["clip"])
    assert not clips["train"] & clips["val"]
    if not options:  # a video of each class
        assert {clip[0] for clip in clips["val"]} == {"a", "b"}


def test_append_resume_repair_and_loaders_know_the_frames(make, convert, invoke, tmp_path):
    import loaders

    first = {"cat/a.mp4": "h264.mp4", "dog/c.webm": "vp9.webm"}
    second = make({**first, "dog/d.mkv": "hevc.mkv"}, "more")
    first = make(first)
    out = tmp_path / "out"
    convert(first, out, "--every", 8, "--resize-shorter", 96)
    before = [shard.read_bytes() for shard in shards_of(out)]
    flip(shards_of(out)[0])
    invoke("repair", out, "--src", first, "--every", 8)
    assert [shard.read_bytes() for shard in shards_of(out)] == before
    convert(second, out, "--append", "--every", 8)
    assert len(rows_of(out)) == 30
    assert "nothing to append" in convert(second, out, "--append", "--every", 8).output
    invoke("verify", out, "--decode")
    train = loaders.build(
        str(out),
        split="train",
        batch_size=8,
        device="cpu",
        transforms=[{"Resize": {"size": [48, 64]}}, "ToTensor"],
        sampler=loaders.ClipSampler(4),
        fields=("image", "label", "frame", "time"),
    )
    with train:
        for images, _, frames, times in train:
            assert images.shape == (2, 4, 3, 48, 64)
            assert [np.diff(each).tolist() for each in frames] == [[8] * 3] * 2
            np.testing.assert_allclose(np.asarray(times) * 30, frames, atol=0.03)


def test_frames_before_an_edit_begins_are_no_frames(videos, tmp_path):
    """The edit leaves out twelve frames, which the decoder needs nevertheless."""

    def leave_out(content):
        duration, begin = struct.unpack_from(">II", content, 8)
        return content[:8] + struct.pack(">II", duration - 400, begin + 12 * 512) + content[16:]

    data = with_box(videos("h264.mp4").read_bytes(), "moov/trak/edts/elst", leave_out)
    (tmp_path / "a.mp4").write_bytes(data)
    video, read = open_video(tmp_path / "a.mp4")
    expected = [*decoded(videos("h264.mp4"))][12:]
    assert len(video.times) == len(expected)
    np.testing.assert_allclose(video.times, np.arange(FRAMES - 12) / 30, atol=1e-4)
    for number, (_, pixels) in enumerate(expected):
        np.testing.assert_array_equal(read(number), pixels, str(number))


# --- what is refused ------------------------------------------------------------------------------


def test_videos_that_are_refused_or_left_out(make, convert, tmp_path):
    source, photos, archive = make(CLASSES), tmp_path / "photos", tmp_path / "videos.zip"
    table = tmp_path / "source.csv"
    table.write_text("path,label\nsource/cat/a.mp4,run\n")
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(source / "cat/a.mp4", "cat/a.mp4")
    (photos / "cat").mkdir(parents=True)
    Image.fromarray(photograph("chelsea")).save(photos / "cat" / "1.png")
    (photos / "images.csv").write_text("path,label\ncat/1.png,cat\n")
    names = {"source": source, "photos": photos, "archive": archive, "table": table}
    for row, message in read_rows(__file__, "refused"):
        given, options = evaluate(row, names)
        output = convert(given, tmp_path / "out", *options, status=2).output
        assert message in " ".join(output.split()), given
        assert not (tmp_path / "out").exists()
    # Beside images, videos are counted.
    for name in ("cat", "dog"):
        shutil.copy(photos / "cat/1.png", source / name)
    output = " ".join(convert(source, tmp_path / "images").output.split())
    assert "3 videos beside the images are not converted; --fps 5" in output
    output = convert(source, tmp_path / "frames", "--every", 40).output
    assert "skipped files that are not videos by name: .png 2" in " ".join(output.split())


# --- damage and hostile files ---------------------------------------------------------------------


def test_damaged_videos_are_rejected_with_the_reason_and_the_second(
    videos, make, convert, tmp_path
):
    source = make({"cat/a.mp4": "h264.mp4", "dog/a.mp4": "h264.mp4"})
    whole = videos("h264.mp4").read_bytes()
    damaged = {
        "cat/cut.mp4": whole[: len(whole) * 2 // 3],
        "cat/no-header.mp4": whole[:40],
        "cat/empty.mp4": b"",
        "dog/text.mp4": b"no video at all, but some text",
        "dog/list.mkv": b"#EXTM3U\nhttp://127.0.0.1:9/a.ts\nfile:///etc/passwd\n",
    }
    for name, data in damaged.items():
        (source / name).write_bytes(data)
    output = convert(source, tmp_path / "out", "--all-frames", status=1).output
    rejected = {row["source"]: row for row in rejected_of(tmp_path / "out")}
    reasons = {name: row["reason"] for name, row in rejected.items()}
    found = ("truncated", "corrupt", reasons["cat/empty.mp4"], "not-an-image", "not-an-image")
    assert reasons == dict(zip(damaged, found, strict=True))
    kept = sum(row["clip"] == "cat/cut.mp4" for row in rows_of(tmp_path / "out"))
    assert 0 < kept < FRAMES
    assert f" s, after {kept} frames: " in rejected["cat/cut.mp4"]["detail"]
    assert "5 videos are damaged or not read" in output
    # What was there before the damage is what the whole video has.
    expected = [pixels for _, pixels in decoded(videos("h264.mp4"))]
    _, read = open_video(source / "cat/cut.mp4")
    for number in range(kept - 2):
        np.testing.assert_array_equal(read(number), expected[number])


def test_a_video_opens_no_other_file(videos, tmp_path):
    """FFmpeg follows the reference if it is allowed to."""
    whole = videos("plain.mov")
    path = tmp_path / "a.mov"
    path.write_bytes(with_reference(whole.read_bytes(), whole))
    shutil.copy(whole, tmp_path / whole.name)
    with av.open(str(path), options={"enable_drefs": "1"}) as followed:
        assert sum(1 for _ in followed.decode(video=0)) == FRAMES
    (found,) = scan_videos([str(path)], [path.stat().st_size])
    assert str(found) == "corrupt: the video has no frames"


@pytest.mark.parametrize("message", ["MiB of memory", "more than 0 s of CPU time"])
def test_a_video_of_very_many_edits_takes_bounded_memory_and_time(
    videos, tmp_path, monkeypatch, message
):
    """FFmpeg lists all frames again for each edit."""
    edits = 1 << 17
    if "CPU" in message:
        edits = 1 << 18
        monkeypatch.setattr("dataprep.containers.videos._BASE_SECONDS", 0)
        monkeypatch.setattr("dataprep.containers.videos._BASE_MEMORY", 8 << 30)
    path = tmp_path / "a.mov"

    def repeat(content):
        return content[:4] + struct.pack(">I", edits) + content[8:] * edits

    path.write_bytes(with_box(videos("plain.mov").read_bytes(), "moov/trak/edts/elst", repeat))
    (found,) = scan_videos([str(path)], [path.stat().st_size])
    assert isinstance(found, Rejected)
    assert message in str(found)


@pytest.mark.parametrize("kind", ["h264.mp4", "open-gop.mp4", "hevc.mkv", "mpeg4.avi", "av1.mp4"])
def test_damage_costs_the_frames_up_to_the_next_entry_in_any_order(videos, tmp_path, kind):
    whole = bytearray(videos(kind).read_bytes())
    expected, generator = [pixels for _, pixels in decoded(videos(kind))], random.Random(kind)
    for trial in range(examples(8)):
        data = bytearray(whole)
        start = generator.randrange(len(data) // 4, len(data) - 200)
        data[start : start + 150] = generator.randbytes(150)
        path = tmp_path / f"{trial}{Path(kind).suffix}"
        path.write_bytes(data)
        try:
            video, read = open_video(path)
        except Rejected:
            continue
        answers = [answer(read, number) for number in range(len(video.times))]
        DECODER.stop()
        for number in generator.sample(range(len(answers)), min(20, len(answers))):
            assert answer(read, number) == answers[number], (kind, trial, number)
        if kind != "hevc.mkv" and len(answers) == FRAMES:  # a codec that checks little
            pairs = zip(answers, expected, strict=True)
            wrong = [a for a, b in pairs if isinstance(a, bytes) and a != b.tobytes()]
            assert len(wrong) <= 2, (kind, trial, wrong)
        for found in answers:
            assert isinstance(found, bytes) or " s, is " in found


def answer(read, number):
    try:
        return read(number).tobytes()
    except Rejected as error:
        return str(error)


def test_a_crash_of_the_decoder_costs_one_video(videos):
    _, read = open_video(videos("hevc.mkv"))
    read(2)
    os.kill(DECODER._process.pid, signal.SIGSEGV)
    for number in (3, 4):
        with pytest.raises(Rejected, match="the decoder crashed with SIGSEGV"):
            read(number)
    _, other = open_video(videos("vp9.webm"))
    other(4)


def test_a_video_that_changed_since_the_scan_stops_the_run(videos, tmp_path):
    path = tmp_path / "a.mp4"
    shutil.copy(videos("h264.mp4"), path)
    _, read = open_video(path)
    read(0)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(SourceVanishedError, match="another size"):
        read(1)

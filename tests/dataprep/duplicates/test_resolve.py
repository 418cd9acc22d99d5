"""`dataprep convert --duplicates` and `--split-by duplicates`: where copies of photographs go."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.datasets import rows_of
from helpers.pictures import encode
from hypothesis import given
from hypothesis import strategies as st

from dataprep.duplicates import results as resolve
from dataprep.duplicates.find import Duplicates
from dataprep.duplicates.results import choose_originals
from dataprep.duplicates.search import make_pairs
from dataprep.options import Options
from dataprep.sources import read_source
from manifests.store import read_manifest


@pytest.fixture
def convert(convert, tmp_path):
    """A function that converts a source to a folder of a name; return it and the result."""

    def run(source, *options, name="out", status=0):
        return tmp_path / name, convert(source, tmp_path / name, *options, status=status)

    return run


def values_of(dataset, column="source"):
    """Return the values of each split."""
    found = {split.name: set() for split in read_manifest(dataset).splits}
    for row in rows_of(dataset):
        found[row["split"]].add(row[column])
    return found


def leaks_of(invoke, dataset, status=0):
    return json.loads(invoke("duplicates", dataset, "--json", status=status).stdout)["leaks"]


def test_keep_is_the_default_and_same_split_loses_nothing(convert, invoke, source):
    """What val shares with train moves to train."""
    out, _ = convert(source)
    assert sum(map(len, values_of(out).values())) == 15
    assert not {"duplicates", "distance", "hash"} & {*read_manifest(out).options}
    out, result = convert(source, "--duplicates", "same-split", name="same")
    found = values_of(out)
    assert found["val"] == {"val/b/grass.jpg"}
    assert len(found["train"]) == 14
    assert "4 images moved from val to train" in result.stderr
    assert leaks_of(invoke, out) == []


def test_copies_never_tear_clips(convert, pictures, tmp_path):
    """A clip of val has one copy of a frame of train; two clips of train share a frame."""
    frames = {
        "train/x/a": "astronaut coffee chelsea", "train/x/b": "chelsea rocket camera",
        "train/y/c": "coins moon", "train/y/d": "clock page", "val/x/e": "coffee brick",
    }  # fmt: skip
    source = tmp_path / "clips"
    for clip, names in frames.items():
        (source / clip).parent.mkdir(parents=True, exist_ok=True)
        for number, name in enumerate(names.split()):
            (source / f"{clip}_{number}.jpg").write_bytes(encode(pictures[name], quality=90))
    options = ("--pattern", "{name}_{frame}", "--label-type", "none")
    _, result = convert(source, *options, "--duplicates", "drop", status=2)
    assert "--duplicates drop would leave gaps in clips" in result.output
    same, result = convert(source, *options, "--duplicates", "same-split")
    assert values_of(same, "clip") == {"train": {*frames}}
    assert "2 images moved from val to train" in result.output
    divided = (*options, "--test-fraction", 0.3, "--split-by")
    out, _ = convert(source, *divided, "duplicates", name="divided")
    clips = values_of(out, "clip")
    assert not clips["train"] & clips["test"]
    assert ("train/x/a" in clips["test"]) == ("train/x/b" in clips["test"])
    _, result = convert(source, *divided, "frame", name="torn", status=2)
    assert "would be in two splits" in result.output


def test_drop(convert, invoke, source):
    """Copies are dropped from train, so that results on val stay comparable."""
    out, result = convert(source, "--duplicates", "drop")
    found = values_of(out)
    val = ["a/astronaut.jpg", "b/half.jpg", "a/mirrored.jpg", "a/rotated.png", "b/grass.jpg"]
    assert found["val"] == {f"val/{name}" for name in val}
    dropped = {f"train/{name}.jpg" for name in ("a/astronaut", "b/coffee", "b/coins", "a/moon")}
    assert len(found["train"]) == 6
    assert not found["train"] & dropped
    lines = (out / "rejected.jsonl").read_text().splitlines()
    rows = {row["source"]: row for row in map(json.loads, lines)}
    assert {*rows} == dropped
    assert {row["reason"] for row in rows.values()} == {"duplicate"}
    same = "the same bytes as val/a/astronaut.jpg"
    assert rows["train/a/astronaut.jpg"]["detail"] == same
    assert rows["train/b/coins.jpg"]["detail"].endswith("mirrored")
    assert "1 of them has another label" in result.stderr
    assert "copies left out: 4 of 15 images" in result.stdout
    invoke("duplicates", out)
    invoke("verify", out)
    # The same command again.
    assert "is complete" in convert(source, "--duplicates", "drop")[1].stdout


def test_drop_and_split_by_duplicates(convert, invoke, monkeypatch, pictures, copies):
    """Two images of a group that is linked by a third one, which is left out, stay in one split."""
    options = ("--duplicates", "drop", "--split-by", "duplicates", "--val-fraction", 0.3)
    out, result = convert(copies, *options)
    assert f"copies left out: {len(pictures)} of {2 * len(pictures)} images" in result.stdout
    assert len(values_of(out)["val"]) == 3
    invoke("duplicates", out)
    source = read_source(str(copies))
    # 0 and 2 are near 1, but not near each other.
    one, other = np.array([0, 1], np.int32), np.array([1, 2], np.int32)
    pairs = make_pairs(one, other, np.zeros(2, np.uint8))
    every = np.arange(len(source))
    found = Duplicates(every, every, pairs, 31)
    monkeypatch.setattr(resolve, "find_duplicates", lambda *_, **__: found)
    left = resolve.resolve_duplicates(source, Options(duplicates="drop", split_by="duplicates"))
    assert len(left) == len(source) - 1
    assert left.copies.tolist()[:3] == [0, 0, 2]


def test_a_changed_image_makes_another_plan(convert, copies):
    """The plan depends on which images are copies, so shards of another grouping are never mixed with it."""
    options = ("--split-by", "duplicates", "--val-fraction", 0.3)
    convert(copies, *options)
    victim = next((copies / "a").iterdir())
    other = next((copies / "b").iterdir()).read_bytes()
    size = victim.stat().st_size
    victim.write_bytes(other[:size].ljust(size, b"\0"))
    result = convert(copies, *options, status=2)[1]
    assert "contains" in result.stderr or "another" in result.stderr


def test_options_that_contradict_each_other(convert, source):
    for options, message in (
        (("--distance", 5), "has no effect"),
        (("--duplicates", "same-split", "--split-by", "label"), "excludes --duplicates same-split"),
        (("--split-by", "duplicates"), "requires --val-fraction"),
    ):
        assert message in convert(source, *options, status=2)[1].stderr


@given(
    st.integers(1, 25).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(0, n - 1), min_size=n, max_size=2 * n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))),
        )
    ),
    st.randoms(use_true_random=False),
)
def test_no_two_images_that_are_kept_are_copies(case, random):
    items, pairs = case
    names = [*dict.fromkeys(items)]
    item = np.array([names.index(value) for value in items])
    first_image = np.array([items.index(name) for name in names])
    edges = sorted({(min(a, b), max(a, b)) for a, b in pairs if a != b and max(a, b) < len(names)})
    first, second = (np.array([edge[side] for edge in edges], np.int32) for side in (0, 1))
    bits = np.array([random.randrange(32) for _ in edges], np.uint8)
    found = Duplicates(item, first_image, make_pairs(first, second, bits), 31)
    rank = np.array(random.sample(range(len(items)), len(items)))
    original, distance, _ = choose_originals(found, rank)
    is_copy = {*edges, *((b, a) for a, b in edges), *((a, a) for a in range(len(names)))}
    kept = [image for image in range(len(items)) if original[image] < 0]
    for image in range(len(items)):
        near = [other for other in kept if other != image and (item[image], item[other]) in is_copy]
        if original[image] < 0:
            assert not near
            continue
        assert original[image] in near
        assert rank[original[image]] < rank[image]
        pair = tuple(sorted((int(item[image]), int(item[original[image]]))))
        assert distance[image] == (-1 if pair[0] == pair[1] else bits[edges.index(pair)])

"""Several texts of each image in batches: one by a draw, the first one, or all."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import loading
from helpers.datasets import FORMATS
from helpers.loading import converted, state_after
from helpers.object_stores import upload
from helpers.pictures import encode, photo
from helpers.rows import evaluate, read_rows

import dataprep
import loaders
from manifests.errors import CallError
from manifests.store import read_manifest

N = 24
TEXTS = [[f"{number}: text {place}, é" for place in range(1 + number % 5)] for number in range(N)]
FIELDS = ("index", "caption")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    for number in range(N):
        (folder / f"{number:02}.jpg").write_bytes(encode(photo(number, 40, 32), "jpg"))
    return folder


@pytest.fixture(scope="module", params=FORMATS)
def made(images, request):
    """A dataset whose samples have 1 to 5 texts, and a weight for each."""
    names = [f"{number:02}.jpg" for number in range(N)]
    pq.write_table(pa.table({"path": names, "captions": TEXTS}), images / "list.parquet")
    out = converted(images / "list.parquet", images / f"out-{request.param}", request.param)
    weights = [[0.0, *range(1, len(texts))] if len(texts) > 1 else [0.5] for texts in TEXTS]
    columns = {"source": names, "weights": weights, "short": [[1]] * N}
    columns["zero"] = [[0.0] * len(texts) for texts in TEXTS]
    columns["large"] = [[2**60 + 1] * len(texts) for texts in TEXTS]
    pq.write_table(pa.table(columns), images / "weights.parquet")
    return out, images / "weights.parquet"


def build(folder, **options):
    return loading.build(folder, **{"fields": FIELDS, "batch_size": 4, **options})


def rows_of(loader):
    """Return an epoch: the captions by row."""
    found = {}
    for index, captions in loader:
        found |= zip(index.tolist(), captions, strict=True)
    return found


def texts_of(loader, choice):
    """Return the texts of each row in stored order, as the tables have them."""
    with build(loader, caption=choice, shuffle=False, last_batch="partial") as every:
        return rows_of(every)


@pytest.mark.parametrize("shuffle", [True, "buffer"])
def test_a_caption_depends_on_seed_epoch_and_sample_alone(made, shuffle):
    folder, _ = made
    every = texts_of(folder, "all")
    assert sorted(every.values()) == sorted(TEXTS)
    assert texts_of(folder, "first") == {row: texts[0] for row, texts in every.items()}
    with build(folder, split="train", shuffle=shuffle, batch_size=8) as loader:
        epochs = [rows_of(loader), rows_of(loader)]
    assert epochs[0] != epochs[1]
    for row, text in epochs[1].items():
        assert text in every[row]
    # At world size 2, and after a state from the middle of an epoch that another world size wrote.
    options = {"shuffle": shuffle, "batch_size": 4, "world_size": 2}
    states, found = [], [{}, {}]
    for rank in range(2):
        with build(folder, rank=rank, **options) as loader:
            for epoch in range(2):
                found[epoch] |= rows_of(loader)
        with build(folder, rank=rank, **options) as loader:
            states.append(state_after(loader, 1))
    assert found == epochs
    if shuffle is True:
        with build(folder, batch_size=8) as loader:
            loader.load_state_dict(states[0])
            rest = rows_of(loader)
            assert len(rest) == N - 8
            assert rest.items() <= epochs[0].items()
    with build(folder, seed=1, batch_size=8) as other:
        assert rows_of(other) != epochs[0]
    options = {"caption": "first", "shuffle": shuffle}
    with build(folder, **options) as other, pytest.raises(CallError, match="caption"):
        other.load_state_dict(states[0])


def test_draws_are_uniform_or_weighted(made):
    """The counts of 400 epochs differ from the shares by less than five standard deviations."""
    folder, table = made
    dataprep.join(str(folder), str(table), on="source")
    for name in ("", "weights"):
        counts = Counter()
        options = {"caption_weights": name} if name else {}
        with build(folder, batch_size=N, transforms=[], **options) as loader:
            for _ in range(400):
                counts.update(text for _, texts in loader for text in texts)
        for texts in TEXTS:
            weights = np.ones(len(texts))
            if name and len(texts) > 1:
                weights = np.arange(len(texts))
            for text, share in zip(texts, weights / weights.sum(), strict=True):
                limit = 5 * np.sqrt(400 * share * (1 - share))
                assert abs(counts[text] - 400 * share) <= limit
    for row, message in read_rows(__file__, "wrong arguments"):
        with pytest.raises(CallError, match=message):
            build(folder, **evaluate(row))
    build(folder, caption_weights="large").close()


def test_weights_are_an_array_and_datasets_are_joined(images, tmp_path):
    """Of two texts each, the weights 0 and 1 draw the second one: from disk, an object store, and in buckets."""
    folders = []
    for part in range(2):
        lines = []
        for number in range(12 * part, 12 * part + 12):
            name = f"{number:02}.jpg"
            row = {"path": name, "captions": [f"{name} not", name], "weights": [0.0, 1.0]}
            lines.append(json.dumps(row))
        (images / f"{part}.jsonl").write_text("\n".join(lines))
        folders.append(converted(images / f"{part}.jsonl", tmp_path / f"{part}"))
    assert read_manifest(folders[0]).arrays["weights"].length == 2
    url = upload(folders[0], f"memory://bucket/{tmp_path.name}")
    bucket = {"sampler": loaders.BucketSampler([(32, 48)]), "transforms": "bucket-train"}
    options = {"fields": ("source", "caption", "image"), "caption_weights": "weights"}
    for dataset, others in (
        (folders, {}),
        (url, {"cache": str(tmp_path / "cache")}),
        (folders[0], bucket),
    ):
        with build(dataset, **options, **others) as loader:
            found = [pair for names, texts, _ in loader for pair in zip(names, texts, strict=True)]
        assert len(found) >= 8
        assert all(name == text for name, text in found)


def test_appended_samples_have_none_of_the_joined_columns(images, tmp_path):
    names = [f"{number:02}.jpg" for number in range(8)]
    for part in (names[:6], names[6:]):
        pq.write_table(pa.table({"path": part}), images / f"{len(part)}.parquet")
    out = tmp_path / "out"
    dataprep.convert(images / "6.parquet", out, label_type="none", workers=1)
    columns = {"source": names[:6], "captions": [[name] for name in names[:6]], "n": range(6)}
    pq.write_table(pa.table(columns), images / "joined.parquet")
    dataprep.join(out, images / "joined.parquet", on="source")
    dataprep.convert(images / "2.parquet", out, append=True, label_type="none", workers=1)
    found = {}
    with build(out, fields=("source", "caption", "n"), last_batch="partial") as loader:
        for sources, *others in loader:
            found |= zip(sources, zip(*others, strict=True), strict=True)
    assert found == {name: (name, n) if n < 6 else (None, None) for n, name in enumerate(names)}

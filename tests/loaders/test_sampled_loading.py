"""Loaders with a sampler return the images that the sampler chooses, on every rank and after a resume."""

import gc
import json
import pickle
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers import small
from helpers.eventually import eventually
from helpers.pictures import encode

import loaders
import loaders.dali.readers
from manifests.errors import CallError, ShardError
from manifests.store import manifest_bytes, read_manifest

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])
EXACT = [{"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}}]
SAMPLERS = [
    loaders.ShuffledSampler(),
    loaders.ClassBalancedSampler("identity"),
    loaders.PKSampler(3, 2, by="identity", across="camera"),
]
EACH = pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)


def build(folder, **options):
    defaults = {"batch_size": 6, "transforms": small.TRAIN, "device": "cpu", "num_threads": 2}
    return loaders.build(folder, **{**defaults, **options})


@pytest.fixture(scope="module")
def people(tmp_path_factory, dataprep):
    """40 images, each with another gray level, of ten identities with 1 to 9 images, from three cameras."""
    folder = tmp_path_factory.mktemp("people")
    identities = np.repeat(np.arange(10), [1, 1, 2, 2, 3, 4, 5, 6, 7, 9])
    rows = []
    for number, identity in enumerate(identities.tolist()):
        path = folder / f"{number:02d}.png"
        path.write_bytes(encode(np.full((40 + number, 60, 3), 6 * number, np.uint8), "png"))
        rows.append(
            {"path": path.name, "label": identity, "identity": f"p{identity}", "camera": number % 3}
        )
    pq.write_table(pa.Table.from_pylist(rows), folder / "people.parquet")
    made = {}
    for fmt in ("tfrecord", "webdataset"):
        made[fmt] = folder / fmt
        arguments = ("--fmt", fmt, "--out", made[fmt], "--samples-per-shard", 7)
        done = dataprep("convert", "--src", folder / "people.parquet", *arguments)
        assert done.returncode == 0, done.stderr
    return made


@FORMATS
@EACH
def test_images_match_their_rows(people, fmt, sampler):
    fields = ("image", "index", "identity", "label", "source")
    loader = build(people[fmt], sampler=sampler, transforms=EXACT, dtype="uint8", fields=fields)
    by_row = {}
    for _ in range(2):
        for images, rows, identities, labels, sources in loader:
            assert images.shape[0] == len(rows) == len(identities) == 6
            for image, row, identity, label, source in zip(
                images, rows.tolist(), identities, labels.tolist(), sources, strict=True
            ):
                gray = round(float(image.float().mean()))
                assert by_row.setdefault(row, (gray, identity, label, source)) == (
                    gray,
                    identity,
                    label,
                    source,
                )
                assert f"{gray // 6:02d}.png" == source
                assert identity == f"p{label}"
    assert len({source for *_, source in by_row.values()}) == len(by_row)


@FORMATS
def test_a_shuffled_epoch_contains_every_sample_once(people, fmt):
    loader = build(
        people[fmt], sampler=loaders.ShuffledSampler(), last_batch="partial", fields=("index",)
    )
    epochs = [[row for (rows,) in loader for row in rows.tolist()] for _ in range(3)]
    assert all(sorted(epoch) == list(range(40)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_a_pk_batch_contains_two_samples_of_each_of_three_identities(people):
    loader = build(
        people["webdataset"], sampler=loaders.PKSampler(3, 2, by="identity"), fields=("identity",)
    )
    epoch = [identities for (identities,) in loader]
    assert len(epoch) == len(loader)
    assert all(sorted(Counter(identities).values()) == [2, 2, 2] for identities in epoch)
    assert len({identity for identities in epoch for identity in identities}) == 10


@pytest.mark.parametrize("last_batch", ["drop", "partial", "pad"])
@EACH
def test_ranks_divide_the_batches_of_a_single_rank(people, sampler, last_batch):
    """Three ranks with batches of 2 read the batches of 6 of one rank, in order."""
    options = {"fields": ("index",), "last_batch": last_batch}
    wide = sampler
    narrow = (
        loaders.PKSampler(1, 2, by="identity", across="camera")
        if isinstance(sampler, loaders.PKSampler)
        else wide
    )
    alone = build(people["tfrecord"], sampler=wide, **options)
    ranks = [
        build(people["tfrecord"], sampler=narrow, batch_size=2, rank=rank, world_size=3, **options)
        for rank in range(3)
    ]
    assert {len(loader) for loader in ranks} == {len(alone)}
    for _ in range(2):
        for (together,), *parts in zip(alone, *ranks, strict=True):
            joined = [row for (part,) in parts for row in part.tolist()]
            if last_batch == "pad":
                assert set(joined) == set(together.tolist())
                assert all(len(part) == 2 for (part,) in parts)
            else:
                assert joined == together.tolist()


def test_training_leaves_out_samples_that_are_fewer_than_the_ranks(people):
    ranks = [
        build(people["tfrecord"], sampler=loaders.ShuffledSampler(), batch_size=13, last_batch="partial",
              rank=rank, world_size=3, fields=("image", "index"))
        for rank in range(3)
    ]  # fmt: skip
    epochs = [[(len(images), rows.tolist()) for images, rows in loader] for loader in ranks]
    assert [[size for size, _ in epoch] for epoch in epochs] == [[13], [13], [13]]
    assert len({row for epoch in epochs for _, rows in epoch for row in rows}) == 39


@FORMATS
@EACH
def test_resumes_with_another_prefetch(people, fmt, sampler):
    whole = build(people[fmt], sampler=sampler)
    epochs = [list(whole) for _ in range(3)]
    stops = ((0, 1), (1, 3)) if fmt == "tfrecord" else ((0, 6), (1, 3))
    for epoch, taken in stops:
        resume_at(people[fmt], sampler, epochs, epoch, min(taken, len(whole)))


def resume_at(folder, sampler, epochs, epoch, taken):
    """Stop after some batches of an epoch, resume with another prefetch, and compare the rest of all epochs."""
    first = build(folder, sampler=sampler, prefetch=3)
    for _ in range(epoch):
        list(first)
    iteration = iter(first)
    for _ in range(taken):
        next(iteration)
    state = first.state_dict()
    second = build(folder, sampler=sampler, prefetch=1)
    second.load_state_dict(state)
    later = [*(([epochs[epoch][taken:]]) if taken < len(first) else []), *epochs[epoch + 1 :]]
    for expected in later:
        found = list(second)
        assert len(found) == len(expected)
        for (images, labels), (images_again, labels_again) in zip(found, expected, strict=True):
            assert torch.equal(images, images_again)
            assert torch.equal(labels, labels_again)


def test_resumes_in_a_new_process(people, tmp_path, python):
    script = (
        "import loaders, pickle, sys\nloader = loaders.build(sys.argv[1], batch_size=6,"
        f" transforms={small.TRAIN}, device='cpu', num_threads=1,\n    sampler=loaders.PKSampler(3,"
        " 2, by='identity'), prefetch=1)\nloader.load_state_dict(pickle.load(open(sys.argv[2],"
        " 'rb')))\npickle.dump([(images.numpy(), labels.numpy()) for images, labels in loader],"
        " open(sys.argv[3], 'wb'))\n"
    )
    loader = build(people["webdataset"], sampler=loaders.PKSampler(3, 2, by="identity"))
    iteration = iter(loader)
    next(iteration)
    (tmp_path / "state").write_bytes(pickle.dumps(loader.state_dict()))
    rest = list(iteration)
    python.run(
        "-c", script, people["webdataset"], tmp_path / "state", tmp_path / "rest", check=True
    )
    again = pickle.loads((tmp_path / "rest").read_bytes())
    assert len(again) == len(rest) > 0
    for (images, labels), (images_again, labels_again) in zip(rest, again, strict=True):
        assert np.array_equal(images.numpy(), images_again)
        assert np.array_equal(labels.numpy(), labels_again)


def test_an_epoch_depends_only_on_seed_and_number(people):
    loader = build(people["tfrecord"], sampler=loaders.ShuffledSampler(), fields=("index",))
    epochs = [[rows.tolist() for (rows,) in loader] for _ in range(3)]
    again = build(people["tfrecord"], sampler=loaders.ShuffledSampler(), fields=("index",))
    for epoch in (2, 0, 1):
        again.set_epoch(epoch)
        assert [rows.tolist() for (rows,) in again] == epochs[epoch]


def test_a_state_of_another_sampler_is_rejected(people):
    state = build(people["tfrecord"], sampler=loaders.PKSampler(3, 2)).state_dict()
    with pytest.raises(
        CallError,
        match=(
            r"sampler='PKSampler\(classes_per_batch=3, samples_per_class=2\)'.*sampler='PKSampler"
        ),
    ):
        build(people["tfrecord"], sampler=loaders.PKSampler(2, 3)).load_state_dict(state)
    with pytest.raises(CallError, match="but this loader has s"):
        build(people["tfrecord"], shuffle=False).load_state_dict(state)


def test_explain_describes_the_plan(people):
    text = build(
        people["tfrecord"], sampler=loaders.PKSampler(3, 2, by="identity", few="drop")
    ).explain()
    assert (
        "planned by PKSampler(classes_per_batch=3, samples_per_class=2, by='identity', few='drop')"
        in text
    )
    assert "identity" in text
    assert "batches of 3 identities x 2 samples" in text


@FORMATS
def test_shards_of_another_tool(people, fmt, tmp_path, dataprep):
    """Shards alone, indexed by `dataprep index`, are sampled in the same way."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in people[fmt].iterdir():
        if shard.suffix in (".tfrecord", ".tar"):
            (folder / shard.name).write_bytes(shard.read_bytes())
    done = dataprep("index", folder)
    assert done.returncode == 0, done.stderr
    sampler = loaders.PKSampler(3, 2)
    ours = build(people[fmt], sampler=sampler, transforms=EXACT, dtype="uint8")
    theirs = build(folder, sampler=sampler, transforms=EXACT, dtype="uint8")
    for (images, labels), (images_again, labels_again) in zip(ours, theirs, strict=True):
        assert torch.equal(images, images_again)
        assert torch.equal(labels, labels_again)


def test_labels_of_mixed_images(people):
    loader = build(people["tfrecord"], sampler=loaders.PKSampler(3, 2), transforms="modern-train")
    for _, labels in loader:
        assert labels.shape == (6, 10)
        assert torch.allclose(labels.sum(1), torch.ones(6), atol=1e-3)


@dataclass(frozen=True)
class Backwards:
    """A custom sampler: rows from the last to the first."""

    wrong: str = ""

    @property
    def columns(self):
        return ("camera",)

    def plan(self, columns, *, samples, batch_size, world_size, seed):
        assert columns["camera"].tolist() == [int(camera) for camera in columns["camera"]]
        return BackwardsPlan(samples, batch_size * world_size, self.wrong)


@dataclass(frozen=True)
class BackwardsPlan:
    samples: int
    size: int
    wrong: str
    lines = ("From the last to the first.",)

    def batch(self, epoch, number):
        rows = np.arange(self.samples)[::-1][number * self.size : (number + 1) * self.size]
        return {"short": rows[1:], "kind": rows / 2, "range": rows + 1}.get(self.wrong, rows)


def test_a_custom_sampler(people):
    loader = build(
        people["webdataset"], sampler=Backwards(), fields=("index",), last_batch="partial"
    )
    assert [row for (rows,) in loader for row in rows.tolist()] == list(range(40))[::-1]
    assert "From the last to the first." in loader.explain()
    assert "planned by Backwards()" in loader.explain()


def test_a_plan_that_reuses_its_array(people):
    @dataclass(frozen=True)
    class Plan:
        rows: np.ndarray
        samples: int = 40
        lines: tuple = ()

        def batch(self, epoch, number):
            self.rows[:] = np.arange(6 * number, 6 * number + 6)
            return self.rows

    class Sampler:
        columns = ()

        def plan(self, columns, **_):
            return Plan(np.zeros(6, np.int64))

    loader = build(people["tfrecord"], sampler=Sampler(), fields=("index",))
    assert [row for (rows,) in loader for row in rows.tolist()] == list(range(36))


def test_a_sampler_that_fails_while_a_state_is_loaded_is_named(people):
    """The sampler's CallError is also a ValueError, but must not be reported as a damaged checkpoint."""

    class Sampler:
        columns = ()

        def __init__(self, fails):
            self.fails = fails

        def plan(self, columns, **_):
            def batch(epoch, number):
                return np.arange(3 if self.fails and epoch else 6)

            return SimpleNamespace(samples=36, lines=(), batch=batch)

    saved = build(people["tfrecord"], sampler=Sampler(fails=False), fields=("index",))
    list(saved)
    iteration = iter(saved)
    next(iteration)
    loader = build(people["tfrecord"], sampler=Sampler(fails=True), fields=("index",), prefetch=1)
    with pytest.raises(CallError, match="batch 1 of epoch 1 must be 6 integers"):
        loader.load_state_dict(saved.state_dict())
    # The loader is back where it was.
    assert next(iter(loader))[0].tolist() == list(range(6))


@pytest.mark.parametrize(
    ("columns", "plan", "message"),
    [
        ("label", None, "columns must be a tuple of column names, got 'label'"),
        (None, None, "columns must be a tuple of column names, got None"),
        ((), None, "must return a plan whose samples is an int of at least 1, got None"),
        ((), SimpleNamespace(samples=24.0),
         "must return a plan whose samples is an int of at least 1, got 24.0"),
        ((), SimpleNamespace(samples=24, lines="hello", batch=len),
         r"plan that has lines \(a tuple of strings\) and the method batch"),
        ((), SimpleNamespace(samples=24, lines=()),
         r"plan that has lines \(a tuple of strings\) and the method batch"),
    ],
)  # fmt: skip
def test_objects_that_do_not_follow_the_protocol(people, columns, plan, message):
    sampler = SimpleNamespace(columns=columns, plan=lambda columns, **_: plan)
    with pytest.raises(CallError, match=message):
        build(people["tfrecord"], sampler=sampler)


def test_numpy_integers_are_accepted(people):
    plain = build(people["tfrecord"], sampler=loaders.PKSampler(3, 2), seed=3)
    other = build(
        people["tfrecord"],
        sampler=loaders.PKSampler(np.uint8(3), np.int64(2)),
        seed=np.int32(3),
        batch_size=np.int16(6),
    )
    other.load_state_dict(plain.state_dict())
    assert (
        loaders.ClassBalancedSampler(alpha=np.float32(0.5), samples=np.int32(1000)).samples == 1000
    )


def test_a_partial_batch_larger_than_an_epoch_is_not_padded(people):
    loader = build(
        people["tfrecord"], sampler=loaders.ShuffledSampler(), batch_size=4096, last_batch="partial"
    )
    assert loader.options.batch_size == 40
    assert [len(images) for images, _ in loader] == [40]


def test_build_warns_about_small_identities(people):
    with pytest.warns(
        UserWarning,
        match="2 of 10 identities have fewer than 2 samples; their 2 samples are repeated",
    ):
        build(people["tfrecord"], sampler=loaders.PKSampler(3, 2))
    with pytest.raises(CallError, match='Hint: set few="repeat", or a samples_per_class below 12'):
        build(people["tfrecord"], sampler=loaders.PKSampler(1, 12, few="drop"), batch_size=12)


def test_build_warns_about_classes_without_samples(people, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(people["tfrecord"], folder)
    manifest = read_manifest(folder)
    (folder / "manifest.json").write_bytes(
        manifest_bytes(replace(manifest, classes=(*manifest.classes, "x", "y")))
    )
    with pytest.warns(UserWarning, match="2 of 12 classes have no sample in split 'train'"):
        build(folder, sampler=loaders.ClassBalancedSampler())


def test_a_thread_may_outlive_the_main_thread(people, python):
    script = (
        "import loaders, sys, threading\nloader = loaders.build(sys.argv[1], batch_size=6,"
        f" transforms={small.TRAIN}, device='cpu', num_threads=1,\n   "
        " sampler=loaders.ShuffledSampler())\ndef train():\n    for _ in range(20): count = sum(1"
        " for _ in loader)\n    print('batches', count)\nthreading.Thread(target=train).start()\n"
    )
    done = python.run("-c", script, people["webdataset"])
    assert (done.returncode, done.stdout) == (0, "batches 6\n"), done.stderr


def test_a_process_may_end_while_batches_are_prefetched(people, python):
    script = (
        "import loaders, sys\nloader = loaders.build(sys.argv[1], batch_size=6,"
        " transforms='imagenet-train', device='cpu', prefetch=4,\n   "
        " sampler=loaders.ShuffledSampler())\nbatches = iter(loader); next(batches)\n"
    )
    for _ in range(3):
        done = python.run("-c", script, people["webdataset"])
        assert (done.returncode, done.stderr) == (0, "")


def test_close_unmaps_the_shards(people, tmp_path):
    folder = tmp_path / "unmapped"
    shutil.copytree(people["webdataset"], folder)
    loader = build(folder, sampler=loaders.ShuffledSampler())
    list(loader)
    loader.close()
    del loader
    gc.collect()
    assert eventually(lambda: "unmapped" not in Path("/proc/self/maps").read_text())


@pytest.mark.parametrize("wrong", ["short", "kind", "range"])
def test_a_custom_sampler_with_wrong_batches(people, wrong):
    with pytest.raises(CallError, match="batch 0 of epoch 0 must be 6 integers from 0 to 39, got"):
        build(people["webdataset"], sampler=Backwards(wrong))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": loaders.PKSampler(4, 2)},
         "batch_size=6, but PKSampler.4, 2. makes batches of 8.*batch_size=8"),
        ({"sampler": loaders.PKSampler(11, 2), "batch_size": 22}, "11.*10"),
        ({"sampler": loaders.PKSampler(3, 2, by="person")},
         "'person', which is not a column of the sample.*label"),
        ({"sampler": loaders.PKSampler(3, 2, by="identitty")}, "did you mean 'identity'"),
        ({"sampler": loaders.PKSampler(3, 2, across="kamera")}, "did you mean 'camera'"),
        ({"sampler": loaders.PKSampler},
         "sampler must follow the protocol loaders.samplers.Sampler"),
        ({"sampler": "PKSampler"}, "sampler must follow the protocol loaders.samplers.Sampler"),
        ({"sampler": loaders.ShuffledSampler(), "shuffle": True},
         "shuffle=True cannot be combined with a sampler, which decides the order"),
        ({"sampler": loaders.ShuffledSampler(), "batch_size": 41},
         "batch_size=41 is more than the 40 samples of split 'train'"),
        ({"sampler": loaders.ClassBalancedSampler(samples=30), "batch_size": 31},
         "batch_size=31 is more than the 30 samples in an epoch of ClassBalancedSampler"),
    ],
)  # fmt: skip
def test_wrong_arguments(people, options, message):
    with pytest.raises(CallError, match=message):
        build(people["tfrecord"], **options)


def test_a_deleted_shard_is_named(people, tmp_path, monkeypatch):
    monkeypatch.setattr(loaders.dali.readers, "READ_AHEAD_BATCHES", 0)
    folder = tmp_path / "copy"
    shutil.copytree(people["tfrecord"], folder)
    loader = build(folder, sampler=loaders.ShuffledSampler(), batch_size=1, prefetch=1)
    for shard in folder.glob("*.tfrecord"):
        shard.unlink()
    # A shard that is already mapped stays; any other is missing when its first image is read.
    with pytest.raises(
        ShardError, match=r"\.tfrecord: the shard cannot be read \(No such file or directory\)"
    ):
        list(loader)


def test_the_sampler_of_a_config(people, tmp_path):
    config = {
        "DataLoader": {
            "Train": {
                "dataset": {"name": "VeriWild", "transform_ops": EXACT},
                "sampler": {
                    "name": "PKSampler",
                    "batch_size": 6,
                    "sample_per_id": 2,
                    "drop_last": False,
                },
            }
        }
    }
    file = tmp_path / "reid.yaml"
    file.write_text(json.dumps(config))
    with pytest.warns(
        UserWarning, match=r"the config's sampler PKSampler becomes PKSampler\(classes_per_batch=3"
    ):
        loader = loaders.build(people["tfrecord"], transforms=file, device="cpu", fields=("label",))
    for (labels,) in loader:
        assert sorted(Counter(labels.tolist()).values()) == [2, 2, 2]
    with pytest.raises(
        CallError, match="shuffle=False cannot be combined with a sampler, which decides the order"
    ):
        loaders.build(people["tfrecord"], transforms=file, device="cpu", shuffle=False)

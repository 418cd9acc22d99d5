"""A receipt says which samples were seen and how often: beside what loaders really returned."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.loading import build

import loaders
from loaders.cli import main
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.receipt import read_receipt, seen_keys
from manifests.errors import CallError

SHUFFLED = {"shuffle": True}
BUCKETS = {"sampler": loaders.BucketSampler([(32, 48), (48, 32)], 32 * 48, batch="pixels"), "transforms": "bucket-eval"}  # fmt: skip
RUNS = {
    "shuffled, drop": ("gray", SHUFFLED | {"last_batch": "drop"}, 2),
    "shuffled, pad": ("gray", SHUFFLED | {"last_batch": "pad"}, 3),
    "shuffled, partial": ("gray", SHUFFLED | {"last_batch": "partial"}, 1),
    "in order": ("gray", {"shuffle": False, "last_batch": "drop"}, 2),
    "balanced": ("people", {"sampler": loaders.ClassBalancedSampler(alpha=0.5)}, 2),
    "identities": ("people", {"sampler": loaders.PKSampler(2, 2)}, 2),
    "a subset": ("people", {"sampler": loaders.SubsetSampler(where="label != 1"), "batch_size": 2}, 1),
    "buckets": ("gray", BUCKETS | {"last_batch": "drop"}, 1),
    "skip": ("damaged", SHUFFLED | {"on_error": "skip"}, 2),
    "replace": ("damaged", SHUFFLED | {"on_error": "replace"}, 2),
}  # fmt: skip


def keys_of(folder, seen):
    tables = SampleTables(open_split(folder, "train"))
    table = tables.columns(["key", "source"], requested_by="test")
    counted = Counter()
    for row, times in seen.items():
        counted[table["key"][row], table["source"][row]] += times
    return counted


@pytest.mark.parametrize("name", RUNS)
def test_receipts_say_what_loaders_returned(prepared, name):
    kind, options, world = RUNS[name]
    folder, seen, states = prepared[f"{kind} tfrecord"], Counter(), []
    for rank in range(world):
        fields = ("image", "index", "valid")
        each = {"batch_size": 4, "fields": fields, "rank": rank, "world_size": world, **options}
        with build(folder, **each) as loader:
            for _, rows, valid in [*loader]:
                seen.update(rows[valid].tolist())
            for number, (_, rows, valid) in enumerate(loader):
                seen.update(rows[valid].tolist())
                if number == 1:
                    state = loader.state_dict()
                    break
        with build(folder, **each) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            for _, rows, valid in [*loader]:
                seen.update(rows[valid].tolist())
            states.append(loader.state_dict())
            receipt = loader.receipt()
    assert receipt["epochs"] == 2
    found = seen_keys([read_receipt(state) for state in states])
    if name == "replace":  # what replaces a bad image was seen, and is not valid
        assert found >= keys_of(folder, seen)
        assert found.total() == receipt["samples_seen"]
        return
    assert found == keys_of(folder, seen)
    if name != "skip":
        assert found.total() == receipt["samples_seen"]


def test_command_answers_whether_a_model_saw_an_image(prepared, tmp_path):
    with build(prepared["people tfrecord"], shuffle=True, last_batch="pad") as loader:
        list(loader)
        state = loader.state_dict()
    checkpoint = tmp_path / "checkpoint.pt"
    torch.save({"model": {"w": torch.zeros(3)}, "loaders": [state]}, checkpoint)

    def run(*arguments):
        return CliRunner().invoke(main, ["receipt", str(checkpoint), *arguments])

    shown = run()
    assert "1 whole epoch of" in shown.output
    assert json.loads(run("--json").output)[0]["dataset"]["digest"] in shown.output
    lines = [line.split("\t") for line in run("--keys").output.splitlines()]
    assert {times for _, _, times in lines} == {"1"}
    assert run("--find", lines[0][0]).output.split("\t")[0] == lines[0][0]
    assert run("--find", "nobody").exit_code == 1
    assert run("--keys", "--dataset", str(prepared["gray tfrecord"])).exit_code == 2


class Runs:
    """A pickle of it creates a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b"PK\x03\x04",
        "folder",
        "pickle",
        "state",
        "seed",
        "world_size",
        "revision",
    ],
)
def test_other_files_are_refused(prepared, tmp_path, content):
    path, made = tmp_path / "file.pt", tmp_path / "made"
    if content == "folder":
        path.mkdir()
    elif content == "pickle":
        torch.save({"state": Runs(made)}, path)
    elif content == "state":
        members = dict.fromkeys(("built", "position", "checkpoint", "seen", "origin"), 7)
        path.write_text(json.dumps(members))
    elif isinstance(content, str):
        with build(prepared["gray tfrecord"]) as loader:
            state = loader.state_dict()
        part = state if content == "revision" else state["built"]
        part[content] = [] if content == "revision" else "7"
        path.write_text(json.dumps(state))
    else:
        path.write_bytes(content)
    result = CliRunner().invoke(main, ["receipt", str(path)])
    assert result.exit_code == 2, result.output
    assert content != "folder" or "Hint: name a file in it, or save one with" in result.output
    assert not made.exists()


def test_orders_of_the_script_alone_are_refused(prepared):
    weights = np.arange(1, 40)
    with build(prepared["gray tfrecord"], sampler=loaders.WeightedSampler(weights)) as loader:
        list(loader)
        receipt = read_receipt(loader.state_dict())
    with pytest.raises(CallError, match="known to the training script alone"):
        seen_keys([receipt])

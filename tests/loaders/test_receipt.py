"""A receipt says which samples were seen and how often: beside what loaders really returned."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.loading import build, take
from helpers.rows import read_named

import loaders
from loaders.cli import main
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.receipt import read_receipt, seen_keys
from manifests.errors import CallError

SHAPED = {
    "sampler": loaders.BucketSampler([(32, 48), (48, 32)], 32 * 48, batch="pixels"),
    "transforms": "bucket-eval",
}
#: Kind of dataset, options and ranks of each run.
RUNS = read_named(__file__, "runs", vars(loaders), globals())


def keys_of(folder, seen):
    tables = SampleTables(open_split(folder, "train"))
    keys, sources = tables.columns(["key", "source"], requested_by="test").values()
    counted = Counter()
    for row, times in seen.items():
        counted[keys[row], sources[row]] += times
    return counted


@pytest.mark.parametrize("name", RUNS)
def test_receipts_say_what_loaders_returned(prepared, name):
    kind, options, world = RUNS[name]
    folder, seen, states = prepared[f"{kind} tfrecord"], Counter(), []
    for rank in range(world):
        fields = ("image", "index", "valid")
        each = {"batch_size": 4, "fields": fields, "rank": rank, "world_size": world, **options}
        with build(folder, **each) as loader:
            batches = [*loader, *take(loader, 2)]
            state = loader.state_dict()
        with build(folder, **each) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            for _, rows, valid in [*batches, *loader]:
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
    [b"", b"{", b"[1]", b"PK\x03\x04", "pickle", "state", "seed", "world_size", "revision"],
)
def test_other_files_are_refused(prepared, tmp_path, content):
    path, made = tmp_path / "file.pt", tmp_path / "made"
    with build(prepared["gray tfrecord"]) as loader:
        state = loader.state_dict()
    if content == "pickle":
        torch.save({"state": Runs(made)}, path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        if content == "state":
            state = dict.fromkeys(("built", "position", "checkpoint", "seen", "origin"), 7)
        elif content == "revision":
            state["revision"] = []
        else:
            state["built"][content] = "7"
        path.write_text(json.dumps(state))
    result = CliRunner().invoke(main, ["receipt", str(path)])
    assert result.exit_code == 2, result.output
    assert not made.exists()
    result = CliRunner().invoke(main, ["receipt", str(tmp_path)])
    assert result.exit_code == 2, result.output
    assert "Hint: name a file in it, or save one with" in result.output


def test_orders_of_the_script_alone_are_refused(prepared):
    weights = np.arange(1, 40)
    with build(prepared["gray tfrecord"], sampler=loaders.WeightedSampler(weights)) as loader:
        list(loader)
        receipt = read_receipt(loader.state_dict())
    with pytest.raises(CallError, match="known to the training script alone"):
        seen_keys([receipt])

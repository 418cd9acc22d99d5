"""Loaders return the recorded batches, and their texts are as recorded.

`scripts/golden` records them anew and shows the difference.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from golden.batches import RECORDS, BatchRecorder, far_apart, machine
from golden.datasets import make_datasets
from golden.loader_scenarios import SCENARIOS
from golden.test_golden import UPDATE, compare
from helpers.untraced import untraced

from loaders.transforms.parse import transform_table

__all__ = ["untraced"]

MACHINE = RECORDS / "machine.json"


@pytest.fixture(scope="session")
def datasets(tmp_path_factory, dataprep):
    root = tmp_path_factory.mktemp("golden")
    return root, make_datasets(root, dataprep)


@pytest.mark.parametrize("name", SCENARIOS)
def test_loaders_are_as_recorded(name, datasets, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    root, make = datasets
    recorder = BatchRecorder(make, root, tmp_path)
    SCENARIOS[name](recorder)
    path = RECORDS / f"{name}.txt"
    arrays = path.with_suffix(".npz")
    if UPDATE:
        arrays.unlink(missing_ok=True)
        if recorder.arrays:
            np.savez_compressed(arrays, **recorder.arrays)
    recorded = dict(np.load(arrays)) if arrays.exists() else {}
    is_exact, far = (
        json.loads(MACHINE.read_text()) == machine(),
        far_apart(recorded, recorder.arrays),
    )
    compare(path, recorder.text(), is_exact=is_exact, more=far)


def test_each_record_of_loaders_has_its_scenario():
    if UPDATE:
        MACHINE.write_text(json.dumps(machine(), indent=1) + "\n")
        for path in RECORDS.glob("*.*"):
            if path.stem not in {*SCENARIOS, "machine"}:
                path.unlink()
    assert {path.stem for path in RECORDS.glob("*.txt")} == {*SCENARIOS}


def test_every_name_of_a_transform_is_recorded():
    text = "".join(path.read_text("utf-8") for path in RECORDS.glob("transforms_*.txt"))
    assert [info.name for info in transform_table() if f"'{info.name}'" not in text] == []

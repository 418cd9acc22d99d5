"""Calls that `loaders.build` refuses before it reads an image: what is wrong, and what to write instead."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.loading import build
from helpers.rows import evaluate, read_rows, tables

import loaders
from loaders import samplers
from loaders.cli import main
from manifests.errors import CallError, ManifestError

CROP = [{"RandomResizedCrop": {"size": 32}}]
ROTATION = {"RandomRotation": {"degrees": 10, "prob": 1}}
MIXED, PEOPLE = "mixed tfrecord", "people tfrecord"


def sampler(columns=(), plan=None):
    return SimpleNamespace(columns=columns, plan=lambda columns, **_: plan)


def plan_of(rows, samples=24):
    return SimpleNamespace(samples=samples, lines=(), batch=lambda epoch, number: rows)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("names", "options", "message"),
    [(names, *row) for names in tables(__file__) for row in read_rows(__file__, names)],
)
def test_refused(prepared, names, options, message):
    dataset, *others = [prepared[name] for name in names.split(" + ")]
    given = evaluate(options, vars(samplers), globals(), {"np": np})
    with pytest.raises(CallError) as caught:
        build([dataset, *others] if others else dataset, **given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_are_those_of_python_too(prepared):
    assert issubclass(loaders.CallError, ValueError)
    assert issubclass(loaders.CallError, loaders.DatasetError)
    assert issubclass(loaders.DamagedError, loaders.DatasetError)
    with pytest.raises(TypeError, match="no argument transform"):
        build(prepared[MIXED], transform=[])
    with pytest.raises(TypeError, match="one argument by position, the dataset, but got 3"):
        loaders.build(prepared[MIXED], 4, [])


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        *((each, "dataset must be a path, got ") for each in (None, 3, "", b"data", [3])),
        ("a\0b", "cannot be the name of a folder"),
        ("\ud800", "cannot be the name of a folder"),
    ],
)
def test_a_dataset_must_be_a_path(dataset, message):
    with pytest.raises(CallError, match=message):
        build(dataset)


def test_folders_that_are_no_datasets(tmp_path):
    with pytest.raises(ManifestError, match="the dataset is incomplete"):
        build(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1.jpg").write_bytes(b"")
    message = f"this is a folder of images. Hint: run `dataprep convert --src {tmp_path}` first"
    with pytest.raises(CallError) as caught:
        build(tmp_path)
    assert message in str(caught.value)
    transforms = ["--transforms", "imagenet-eval"]
    for command, *options in (
        ("preview", *transforms), ("bench", *transforms), ("memory", "--batch-size", "2")
    ):  # fmt: skip
        done = CliRunner().invoke(main, [command, str(tmp_path), *options])
        assert (done.exit_code, message in done.stderr) == (2, True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_gpu(prepared):
    message = r'device="gpu", but this machine has no GPU\. Hint: set device="cpu"'
    with pytest.raises(CallError, match=message):
        build(prepared[MIXED], device="gpu")
    with build(prepared[MIXED], device="auto") as loader:
        assert next(iter(loader))[0].device.type == "cpu"

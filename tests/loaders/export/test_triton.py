"""`loaders export --for triton`: a server without `loaders` gives the loader's images, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import serve_models
from helpers.exported import NORMALIZE, RECIPES
from helpers.loading import build, convert
from helpers.rows import evaluate, read_rows

import loaders
from dataprep.options import Raw
from loaders.cli import main
from loaders.dali.serving import run_serialized
from loaders.export import triton
from loaders.export.command import export
from manifests.errors import CallError, StorageError

LARGEST = 12


@pytest.fixture(scope="module")
def expected(photos):
    """The loader's batch of 12 samples for each recipe."""
    found, given = (
        {},
        {"batch_size": 12, "shuffle": False, "framework": "numpy", "dtype": "float32"},
    )
    for recipe, (transforms, options) in RECIPES.items():
        with build(photos, transforms=transforms, **{**given, **options}) as loader:
            found[recipe] = next(iter(loader))
    return found


def write(photos, out, transforms, **options):
    given = {"target": "triton", "device": "cpu", **options}
    return export(str(photos), str(out), transforms=transforms, **given)


@pytest.fixture(scope="module")
def exported(photos, tmp_path_factory):
    """All recipes, exported into one model repository."""
    out = tmp_path_factory.mktemp("repository")
    for name, (transforms, options) in RECIPES.items():
        write(photos, out, transforms, name=name, samples=12, max_batch_size=LARGEST, **options)
    return out


@pytest.fixture(scope="module")
def served(exported, tmp_path_factory):
    """What a process that has only DALI makes of all of them."""
    folder = tmp_path_factory.mktemp("served")
    jobs = []
    for name in RECIPES:
        job = {"version": str(exported / name / "1"), "out": str(folder / f"{name}.npz")}
        job["encoded"] = str(exported / name / "golden" / "encoded.npy")
        jobs.append({**job, "largest": LARGEST, "device_id": None})
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, "-I", serve_models.__file__, str(folder / "jobs.json")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: np.load(folder / f"{name}.npz", allow_pickle=False) for name in RECIPES}


@pytest.mark.parametrize("source", ["model.dali", "dali.py"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_batches_of_every_size_are_those_of_the_loader(expected, served, recipe, source):
    images, _ = expected[recipe]
    for count in range(1, LARGEST + 1):
        start = count % (len(images) - count + 1)
        assert np.array_equal(served[recipe][f"{source} {count}"], images[start : start + count])


@pytest.mark.parametrize("recipe", RECIPES)
def test_config_is_one_of_triton(expected, exported, recipe):
    pytest.importorskip("tritonclient")
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    text = (exported / recipe / "config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    images, _ = expected[recipe]
    assert (config.backend, config.max_batch_size) == ("dali", 12)
    (sent,), (made,) = config.input, config.output
    assert (sent.name, list(sent.dims)) == ("encoded", [-1])
    assert sent.data_type == model_config_pb2.TYPE_UINT8
    assert sent.allow_ragged_batch
    types = {"float32": "TYPE_FP32", "float16": "TYPE_FP16", "uint8": "TYPE_UINT8"}
    assert made.data_type == getattr(model_config_pb2, types[images.dtype.name])
    assert list(made.dims) == list(images.shape[1:])
    assert config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_CPU
    assert config.HasField("dynamic_batching")


def test_labels_and_no_paths_of_this_machine(photos, exported):
    model = exported / "preset"
    labels = (model / "labels.txt").read_text().splitlines()
    assert labels == [f"class {label}" for label in range(4)]
    for name in ("1/model.dali", "1/dali.py", "config.pbtxt", "export.json"):
        for place in (photos.parent, Path(loaders.__file__).parent):
            assert str(place).encode() not in (model / name).read_bytes()


def double(images):
    return images * 2


@pytest.mark.parametrize(("row", "names"), read_rows(__file__, "refused by name"))
def test_refused_by_name(photos, tmp_path, row, names):
    with pytest.raises(CallError) as caught:
        write(photos, tmp_path / "out", evaluate(row, globals(), {"NORMALIZE": NORMALIZE}))
    assert all(name in str(caught.value) for name in evaluate(names)), caught.value
    assert not (tmp_path / "out").exists()


def test_other_inputs_are_refused(photos, make_photos, tmp_path):
    config = tmp_path / "reid.yaml"
    sampler = "{name: PKSampler, batch_size: 8, sample_per_id: 2}"
    transforms = "{transform_ops: [{ResizeImage: {size: [32, 32]}}, {NormalizeImage: {}}]}"
    config.write_text(f"DataLoader: {{Train: {{dataset: {transforms}, sampler: {sampler}}}}}")
    raw = convert(make_photos(tmp_path / "photos", 4), tmp_path / "raw", raw=Raw(32))
    for folder, transforms, message in (
        (photos, str(config), "the config's sampler PKSampler chooses samples"),
        (raw, "reid-eval", "stores pixels"),
        ("s3://bucket/data", "imagenet-eval", "is in an object store"),
    ):
        with pytest.raises(CallError, match=message):
            write(folder, tmp_path / "out", transforms)


def run(*arguments):
    return CliRunner().invoke(
        main, ["export", *map(str, arguments), "--transforms", "imagenet-eval", "--for", "triton"]
    )


def test_command(photos, tmp_path):
    out = tmp_path / "models"
    options = ("--device", "cpu", "--samples", 2)
    done = run(photos, out, *options)
    assert done.exit_code == 0, done.output
    note = "its images of the golden batch are the same as those of the loader\n"
    assert done.output.endswith(note)
    names = ["1", "config.pbtxt", "export.json", "golden", "labels.txt"]
    assert sorted(path.name for path in (out / "preprocess").iterdir()) == names
    assert run(photos, out, *options).exit_code == 2
    assert run(photos, out, *options, "--overwrite").exit_code == 0
    assert [path.name for path in out.iterdir()] == ["preprocess"]
    # A folder of another kind is never replaced.
    (out / "preprocess" / "export.json").unlink()
    assert run(photos, out, *options, "--overwrite").exit_code == 2
    assert run(photos, out, *options, "--name", "pre-process").exit_code == 2


@pytest.mark.parametrize("failing", [1, 2], ids=["the old one stays", "the old one comes back"])
def test_failed_write_leaves_the_old_export(photos, tmp_path, monkeypatch, failing):
    write(photos, tmp_path, "imagenet-eval", samples=1)
    answers = [DEFAULT] * (failing - 1) + [OSError(28, "No space left on device")] + [DEFAULT] * 9
    monkeypatch.setattr("os.rename", Mock(wraps=os.rename, side_effect=answers))
    with pytest.raises(StorageError, match="No space left"):
        write(photos, tmp_path, "reid-eval", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["preprocess"]
    assert "shorter=256" in (tmp_path / "preprocess" / "export.json").read_text()


def test_places_that_cannot_be_written_are_wrong_usage(photos, tmp_path):
    (tmp_path / "file").touch()
    for out, message in (
        (tmp_path / "file" / "models", "file is not a folder. Hint: choose another OUT."),
        ("", "OUT is empty. Hint: name a folder."),
    ):
        done = run(photos, out, "--device", "cpu")
        assert (done.exit_code, message in done.stderr) == (2, True)


@pytest.mark.parametrize("change", [np.s_[:, :, ::-1], np.s_[:1]])
def test_other_images_are_never_written(photos, tmp_path, monkeypatch, change):
    monkeypatch.setattr(triton, "run_serialized", lambda *given: run_serialized(*given)[change])
    message = "does not give the images of the loader, so nothing was written"
    with pytest.raises(CallError, match=message):
        write(photos, tmp_path, "imagenet-eval", samples=2)
    assert not [*tmp_path.iterdir()]

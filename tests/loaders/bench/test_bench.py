"""`loaders bench` and `loaders tune` as commands: on the CPU, with tiny repeats."""

import io
import json
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from helpers.bench import make_results, rate
from helpers.rows import read_rows
from PIL import Image

import loaders
from loaders.bench import command as bench_command
from loaders.bench.command import make_request
from loaders.bench.measure import Method
from loaders.bench.model import decode_jpeg_batches, measure_decode_jpeg, measure_torchvision
from loaders.bench.results import ModelRates, Remedy
from loaders.bench.show import page
from loaders.cli import main
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.resolve import resolve
from loaders.tune import command as tune_command
from loaders.tune.command import kept_entries

QUICK = ("--device", "cpu", "--batch-size", "4", "--seconds", "0.01", "--repeats", "2")

SCRIPT = """
import torch
net = torch.nn.Linear(3, 3)
def step(images, labels):
    torch.nn.functional.cross_entropy(net(images.float().mean((2, 3))), labels).backward()
def broken(images, labels):
    raise KeyError("weights")
def leave(images, labels):
    raise SystemExit(3)
"""


def run(command, dataset, *arguments, transforms="imagenet-train", error=None):
    """Return the output of a command, or the line about an error."""
    words = map(str, (command, dataset, "--transforms", transforms, *QUICK, *arguments))
    done = CliRunner().invoke(main, [*words], standalone_mode=False)
    if error is None:
        assert (done.exception, done.return_value or 0) == (None, 0), done.output
        return done.stdout
    assert error in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def few_values(monkeypatch):
    """The search tries one or two values for each option, so that it takes a second."""
    monkeypatch.setattr(tune_command, "THREADS", (1,))
    monkeypatch.setattr(tune_command, "PREFETCH", (2,))
    monkeypatch.setattr(tune_command, "_LAST_ROUNDS", 1)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def request_for(photographs):
    options = {"transforms": "imagenet-train", "split": "train", "device": "cpu", "batch_size": 4}
    return lambda **changes: make_request(str(photographs), **options | changes)


def test_bench_prints_a_table_and_the_sentence(photographs, script, tmp_path):
    page_file, step = tmp_path / "bench.html", f"{script}:step"
    text = run("bench", photographs, "--model", step, "--html", page_file)
    stages = ("reading", "+ decoding", "+ augmentation", "+ delivery")
    for name in (*stages, f"{step} alone", f"{step} fed"):
        assert text.count(f"\n  {name}") == 1
    assert text.count("<- limit") == 1
    assert " is the limit: " in text.splitlines()[-1]
    for words in ("page cache: ", "other programs: ", "then 2 repeats of at least 0.01 s"):
        assert words in text
    assert text.splitlines()[-1].lower()[:20] in page_file.read_text().lower()
    page_file.write_text("something else")
    run("bench", photographs, "--html", page_file,
        error="exists, and is not a page of `loaders bench`. Hint: choose another name, or")  # fmt: skip


def test_bench_as_json(photographs, tmp_path):
    """What a script prints is not in it, and the page of an earlier run is replaced."""
    script, page_file = tmp_path / "train.py", tmp_path / "bench.html"
    script.write_text("print('imported')\ndef step(images, labels):\n    print('loss 0.1')\n")
    page_file.write_bytes(page(make_results((4, 3, 2, 1))))
    results = json.loads(
        run("bench", photographs, "--model", script, "--json", "--html", page_file)
    )
    assert results["limit"] in results["stages"]
    assert results["sentence"][1:20] in page_file.read_text()
    assert all(len(rate["repeats"]) == 2 for rate in results["stages"].values())
    assert results["subject"]["options"]["num_threads"] >= 1
    assert results["model"]["name"] == str(script)


@pytest.mark.parametrize(("row", "error"), read_rows(__file__, "wrong options"))
def test_wrong_options(photographs, script, tmp_path, row, error):
    (tmp_path / "other.py").write_text("def step(:")
    # As argparse ends a program with arguments of others.
    (tmp_path / "program.py").write_text("import sys\nsys.exit(2)\n")
    command, *arguments = row.format(tmp=tmp_path).split()
    run(command, photographs, *arguments, error=error.format(tmp=tmp_path))


def test_a_model_of_torchvision(monkeypatch, photographs, tmp_path):
    """With a stand-in for torchvision, whose real models take minutes on a CPU."""
    made = []

    def get_model(name, weights, num_classes):
        made.append((name, weights, num_classes))
        parts = (torch.nn.Conv2d(3, 2, 9, 64), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        return torch.nn.Sequential(*parts, torch.nn.Linear(2, num_classes))

    names = ["resnet50", "resnet18"]
    models = SimpleNamespace(list_models=lambda module: names, get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    # The model has an output for each label of the dataset, whatever the config says.
    config = tmp_path / "config.yaml"
    config.write_text("transform_ops: [{RandCropImage: {size: 64}}]\nArch: {class_num: 2}\n")
    text = run("bench", photographs, "--model", "resnet18", transforms=config)
    assert "resnet18 alone" in text
    assert made == [("resnet18", None, 3)]
    error = "torchvision has no model resnet51. Hint: did you mean resnet50"
    run("bench", photographs, "--model", "resnet51", error=error)


def test_without_torchvision(photographs, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    run("bench", photographs, "--torchvision", error="Hint: install it.")
    error = "--model resnet50 needs torchvision ("
    run("bench", photographs, "--model", "resnet50", error=error)


def test_torchvision_reads_the_same_images(request_for, photographs, monkeypatch):
    from helpers.torchvision_oracle import import_torchvision

    import_torchvision()

    def decode_jpeg(files, *_, **__):  # it needs torchvision's own build of torch
        images = [
            np.array(Image.open(io.BytesIO(bytes(file.tolist()))).convert("RGB")) for file in files
        ]
        return [torch.from_numpy(image).permute(2, 0, 1) for image in images]

    monkeypatch.setattr("torchvision.io.decode_jpeg", decode_jpeg)
    error = "--torchvision compares imagenet-train and imagenet-eval, not reid-train"
    run("bench", photographs, "--torchvision", transforms="reid-train", error=error)
    spec = resolve(request_for(transforms="imagenet-eval"))
    spec.close()
    assert measure_torchvision(spec, "imagenet-eval", 0, Method(0.0, 1)).median > 0
    assert measure_decode_jpeg(spec, "imagenet-eval", Method(0.0, 1)) is None
    batch = next(decode_jpeg_batches(spec, "imagenet-eval", "cpu"))
    assert (batch.dtype, batch.shape[1:]) == (torch.float16, (3, 224, 224))


def test_tune_writes_a_file_that_build_uses(photographs, script, tmp_path, few_values):
    out = tmp_path / "tune.json"
    tune = partial(run, "tune", photographs, "--out", out)
    text = tune()
    for words in (
        f'{out} is written: loaders.build(..., tuning="{out}")',
        f"{photographs}: imagenet-train, batches of 4; ", "page cache: ", "other programs: ",
    ):  # fmt: skip
        assert words in text
    (entry,) = json.loads(out.read_text())["entries"]
    assert entry["batch_size"] == 4
    assert entry["notes"]["conditions"].keys() >= {"cached_before", "other_cores"}
    result = json.loads(tune("--json", transforms="imagenet-eval"))
    assert len(result["measured"]) == result["trials"] >= 2
    assert len(json.loads(out.read_text())["entries"]) == 2
    options = {"transforms": "imagenet-train", "batch_size": 4, "device": "cpu", "tuning": out}
    with loaders.build(photographs, **options) as loader:
        assert loader.options.num_threads == entry["options"]["num_threads"]
        assert loader.options.prefetch == entry["options"]["prefetch"]
    line = run("bench", photographs, "--tuning", out, transforms="imagenet-eval").splitlines()[1]
    assert f"num_threads={result['options']['num_threads']}" in line
    text = tune("--model", f"{script}:step")
    assert f"images/s of {script}:step fed by the loader" in text
    objectives = [each["notes"]["objective"] for each in json.loads(out.read_text())["entries"]]
    assert objectives.count("model") == 1
    out.write_text("not a tuning")
    tune(error="exists, and is not a file of `loaders tune`")
    out.write_text('{"loaders_tuning": 1, "entries": 7}')
    tune(error="the file is damaged: entries must be an array")
    assert kept_entries(str(out), overwrite=True) == []


def test_names_are_escaped_and_commands_are_code():
    name = "<script>alert(1)</script>&\"'" + "x" * 150
    remedy = Remedy("with shards at 256 px", "run `dataprep convert --src a<b`", rate(9_000))
    model = ModelRates(name, rate(60_000), rate(9))
    text = page(make_results((9_000, 1_000, 990, 980), [remedy], model, dataset=name)).decode()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    text = page(make_results((9_000, 1_000, 990, 980), [remedy])).decode()
    assert "<code>dataprep convert --src a&lt;b</code>" in text


def test_the_default_batch_size(request_for, photographs, monkeypatch, tmp_path):
    """A batch of 256 images of 12 megapixels takes 9 GiB, and several are in memory at a time."""
    assert request_for(batch_size=None).batch_size == 24
    sizes = SampleTables(open_split(str(photographs), "train")).image_sizes()
    monkeypatch.setattr(bench_command, "_BATCH_BYTES", 9 * 3 * sizes.mean_pixels)
    assert request_for(batch_size=None).batch_size == 8
    monkeypatch.setattr(bench_command, "_BATCH_BYTES", 1)
    assert request_for(batch_size=None).batch_size == 1
    config = tmp_path / "pk.yaml"
    sampler = "{name: PKSampler, batch_size: 6, sample_per_id: 2, drop_last: True}"
    transforms = "{transform_ops: [{RandCropImage: {size: 64}}, {NormalizeImage: {}}]}"
    config.write_text(f"DataLoader: {{Train: {{dataset: {transforms}, sampler: {sampler}}}}}")
    spec = resolve(request_for(batch_size=None, transforms=str(config)))
    assert spec.options.batch_size == 6
    spec.close()

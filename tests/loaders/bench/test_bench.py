"""`loaders bench` and `loaders tune` as commands: on the CPU, with tiny repeats."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from helpers.bench import make_results
from helpers.chromium import chromium, find_chromium

import loaders
from loaders.bench import command as bench_command
from loaders.bench.command import make_request
from loaders.bench.measure import Method, Rate, close
from loaders.bench.model import load_model, measure_torchvision
from loaders.bench.results import ModelRates, Remedy
from loaders.bench.show import page
from loaders.cli import main
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from loaders.resolve import resolve
from loaders.tune import command as tune_command
from loaders.tune.command import kept_entries
from manifests.errors import CallError

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


@pytest.fixture
def run():
    def invoke(*arguments, error=None):
        done = CliRunner().invoke(main, [*map(str, arguments)], standalone_mode=False)
        if error is None:
            assert (done.exception, done.return_value or 0) == (None, 0), done.output
            return done.stdout
        assert error in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1
        return done.stderr

    return invoke


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


def test_bench_prints_a_table_and_the_sentence(run, photographs, script, tmp_path):
    page_file = tmp_path / "bench.html"
    text = run("bench", photographs, "--transforms", "imagenet-train", *QUICK, "--model", f"{script}:step",
               "--html", page_file)  # fmt: skip
    for name in (
        "reading",
        "+ decoding",
        "+ augmentation",
        "+ delivery",
        f"{script}:step alone",
        f"{script}:step fed",
    ):
        assert text.count(f"\n  {name}") == 1
    assert text.count("<- limit") == 1
    assert " is the limit: " in text.splitlines()[-1]
    assert "page cache: " in text
    assert "other programs: " in text
    assert "then 2 repeats of at least 0.01 s" in text
    assert text.splitlines()[-1].lower()[:20] in page_file.read_text().lower()
    run("bench", photographs, "--transforms", "imagenet-train", *QUICK, "--html", page_file)
    page_file.write_text("something else")
    run("bench", photographs, "--transforms", "imagenet-train", *QUICK, "--html", page_file,
        error="exists, and is not a page of `loaders bench`. Hint: choose another name, or")  # fmt: skip


def test_bench_as_json(run, photographs):
    results = json.loads(
        run("bench", photographs, "--transforms", "imagenet-train", *QUICK, "--json")
    )
    assert results["limit"] in results["stages"]
    assert results["sentence"]
    assert all(len(rate["repeats"]) == 2 for rate in results["stages"].values())
    assert results["subject"]["options"]["num_threads"] >= 1
    assert results["machine"]["cores"] >= 1
    assert results["conditions"]["other_cores"] is None or results["conditions"]["other_cores"] >= 0
    assert results["model"] is None


@pytest.mark.parametrize(
    ("model", "error"),
    [
        (
            "none.py:step",
            (
                "--model: none.py is not a Python script. Hint: pass script.py:step, or a name like"
                " resnet50."
            ),
        ),
        ("{script}:stop", "has no function stop. Hint: did you mean 'step'?"),
        ("{script}:broken",
         "raised KeyError: 'weights' in line 7 of {script}. Hint: a step takes images and labels"),
        ("{script}:leave",
         "raised SystemExit: 3 in line 9 of {script}. Hint: a step takes images and labels"),
        ("{other}", "raised SyntaxError: "),
        (
            "{program}",
            (
                "raised SystemExit: 2 in line 2 of {program}. Hint: the script is imported: put"
                " what it does"
            ),
        ),
    ],
)  # fmt: skip
def test_models_that_do_not_work(run, photographs, script, tmp_path, model, error):
    other = tmp_path / "other.py"
    other.write_text("def step(:")
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.exit(2)\n")  # as argparse does with arguments of others
    names = {"script": script, "other": other, "program": program}
    run("bench", photographs, "--transforms", "imagenet-train", *QUICK, "--model", model.format(**names),
        error=error.format(**names))  # fmt: skip


def test_what_a_script_prints_is_not_in_the_json(run, photographs, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print('imported')\ndef step(images, labels):\n    print('loss 0.1')\n")
    common = (
        "bench",
        photographs,
        "--transforms",
        "imagenet-train",
        *QUICK,
        "--model",
        path,
        "--json",
    )
    assert json.loads(run(*common))["model"]["name"] == str(path)


def test_a_script_with_dataclasses(photographs, tmp_path):
    """`dataclasses` looks up the module of a class whose annotations are text."""
    path = tmp_path / "train.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Settings:\n    rate: float = 0.1\n"
        "def step(images, labels):\n    Settings()\n"
    )
    options = {"split": "train", "batch_size": 4, "device": "cpu"}
    spec = resolve(make_request(str(photographs), transforms="imagenet-train", **options))
    assert load_model(f"{path}:step", spec)(("images", [0, 1])) == 2
    close(spec)


def test_without_torchvision(run, photographs, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    common = ("bench", photographs, "--transforms", "imagenet-train", *QUICK)
    run(*common, "--torchvision", error="Hint: install it.")
    run(*common, "--model", "resnet50", error="--model resnet50 needs torchvision (")


def test_a_model_of_torchvision(monkeypatch, photographs, run, tmp_path):
    """With a stand-in for torchvision, whose real models take minutes on a CPU."""
    import torch

    made = []

    def get_model(name, weights, num_classes):
        made.append((name, weights, num_classes))
        parts = (torch.nn.Conv2d(3, 2, 9, 64), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        return torch.nn.Sequential(*parts, torch.nn.Linear(2, num_classes))

    models = SimpleNamespace(
        list_models=lambda module: ["resnet50", "resnet18"], get_model=get_model
    )
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    common = ("bench", photographs, "--transforms", "imagenet-train", *QUICK)
    text = run(*common, "--model", "resnet50")
    assert "resnet50 alone" in text
    # The model has an output for each label of the dataset, whatever the config says.
    config = tmp_path / "config.yaml"
    config.write_text("transform_ops: [{RandCropImage: {size: 64}}]\nArch: {class_num: 2}\n")
    run("bench", photographs, "--transforms", config, *QUICK, "--model", "resnet18")
    assert made == [("resnet50", None, 3), ("resnet18", None, 3)]
    run(
        *common,
        "--model",
        "resnet51",
        error="torchvision has no model resnet51. Hint: did you mean resnet50",
    )


def test_torchvision_and_a_folder_that_does_not_exist(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    common = ("--transforms", "imagenet-train", "--torchvision")
    error = run("bench", tmp_path / "none", *common, error="none")
    assert "object store" not in error
    run(
        "bench",
        "s3://bucket/photos",
        *common,
        error="reads a dataset on disk, not in an object store",
    )


def test_torchvision_reads_the_same_images(photographs, torchvision):
    spec = resolve(
        make_request(
            str(photographs), transforms="imagenet-eval", split="train", batch_size=4, device="cpu"
        )
    )
    close(spec)
    assert measure_torchvision(spec, "imagenet-eval", 0, Method(0.0, 1)).median > 0


@pytest.fixture
def torchvision():
    from helpers.torchvision_oracle import import_torchvision

    return import_torchvision()


def test_torchvision_has_not_all_transforms(run, photographs, torchvision):
    run("bench", photographs, "--transforms", "reid-train", *QUICK, "--torchvision",
        error="--torchvision compares imagenet-train and imagenet-eval, not reid-train")  # fmt: skip


@pytest.mark.parametrize("command", ["bench", "tune"])
def test_wrong_datasets(run, photographs, tmp_path, command):
    run(
        command,
        tmp_path / "none",
        "--transforms",
        "imagenet-train",
        *QUICK,
        error=str(tmp_path / "none"),
    )
    run(
        command,
        photographs,
        "--transforms",
        "imagenet-train",
        "--split",
        "trian",
        error="did you mean 'train'?",
    )
    run(
        command,
        photographs,
        "--transforms",
        "no-such",
        *QUICK,
        error="is neither a preset nor an existing YAML file",
    )
    run(
        command,
        "s3://bucket/set",
        "--transforms",
        "imagenet-train",
        error="and --cache is missing. Hint: set --cache to",
    )


def test_tune_writes_a_file_that_build_uses(run, photographs, tmp_path, few_values):
    out = tmp_path / "tune.json"
    text = run("tune", photographs, "--transforms", "imagenet-train", *QUICK, "--out", out)
    assert f'{out} is written: loaders.build(..., tuning="{out}")' in text
    assert f"{photographs}: imagenet-train, batches of 4; " in text
    assert "page cache: " in text
    assert "other programs: " in text
    (entry,) = json.loads(out.read_text())["entries"]
    assert entry["batch_size"] == 4
    assert entry["notes"]["conditions"].keys() >= {"cached_before", "other_cores"}
    with loaders.build(
        photographs, transforms="imagenet-train", batch_size=4, device="cpu", tuning=out
    ) as loader:
        assert loader.options.num_threads == entry["options"]["num_threads"]
        assert loader.options.prefetch == entry["options"]["prefetch"]
    result = json.loads(
        run("tune", photographs, "--transforms", "imagenet-eval", *QUICK, "--out", out, "--json")
    )
    assert len(result["measured"]) == result["trials"] >= 2
    assert len(json.loads(out.read_text())["entries"]) == 2
    with loaders.build(
        photographs, transforms="imagenet-train", batch_size=4, device="cpu", tuning=out
    ):
        pass
    sentence = run(
        "bench", photographs, "--transforms", "imagenet-eval", *QUICK, "--tuning", out
    ).splitlines()
    assert f"num_threads={result['options']['num_threads']}" in sentence[1]
    out.write_text("not a tuning")
    run("tune", photographs, "--transforms", "imagenet-train", *QUICK, "--out", out,
        error="exists, and is not a file of `loaders tune`")  # fmt: skip
    out.write_text('{"loaders_tuning": 1, "entries": 7}')
    common = ("tune", photographs, "--transforms", "imagenet-train", *QUICK, "--out", out)
    run(*common, error="the file is damaged: entries must be an array")
    assert kept_entries(str(out), overwrite=True) == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ("--objective", "model"),
            "--objective model needs --model. Hint: add --model, for example --model resnet50.",
        ),
        (
            ("--objective", "images", "--model", "x.py:step"),
            "--objective images measures the loader alone",
        ),
    ],
)
def test_objectives(run, photographs, options, error):
    run("tune", photographs, "--transforms", "imagenet-train", *QUICK, *options, error=error)


def test_tune_beside_a_model(run, photographs, script, tmp_path, few_values):
    out = tmp_path / "tune.json"
    text = run(
        "tune",
        photographs,
        "--transforms",
        "imagenet-train",
        *QUICK,
        "--model",
        f"{script}:step",
        "--out",
        out,
    )
    assert f"images/s of {script}:step fed by the loader" in text
    assert json.loads(out.read_text())["entries"][0]["notes"]["objective"] == "model"


# --- the page -------------------------------------------------------------------------------------


@pytest.fixture
def hostile():
    name = "<script>alert(1)</script>&\"'" + "x" * 150
    remedy = Remedy("with shards at 256 px", "run `dataprep convert`", Rate((38_000.0, 39_000.0)))
    return make_results(
        (67_000, 21_900, 21_500, 21_300),
        [remedy],
        ModelRates(name, Rate((60_000.0,)), Rate((9.0,))),
        dataset=name,
    )


def test_names_are_escaped(hostile):
    text = page(hostile)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text


def test_commands_are_shown_as_code():
    remedy = Remedy("with shards at 256 px", "run `dataprep convert --src a<b`", Rate((9_000.0,)))
    text = page(make_results((9_000, 1_000, 990, 980), remedies=(remedy,)))
    assert "<code>dataprep convert --src a&lt;b</code>" in text


@pytest.mark.skipif(find_chromium() is None, reason="needs Chromium or Chrome")
def test_page_in_a_browser(hostile, tmp_path):
    (tmp_path / "bench.html").write_text(page(hostile))
    with chromium(tmp_path) as browser:
        for width in (390, 1400):
            browser.open(tmp_path / "bench.html", width)
            assert browser.complaints() == []
            assert browser.evaluate("document.documentElement.scrollWidth") == width
            assert browser.evaluate("document.querySelectorAll('svg rect').length") == 7
            inside = (
                "[...document.querySelectorAll('svg rect')].every(each => each.width.baseVal.value"
                " <= 340)"
            )
            assert browser.evaluate(inside)
        browser.open(tmp_path / "bench.html", 1400, dark=True)
        # The color of text without one of its own, which the browser chooses with the background.
        assert (
            browser.evaluate("getComputedStyle(document.querySelector('h1')).color")
            == "rgb(255, 255, 255)"
        )


def test_numbers_that_make_no_loader(photographs):
    with pytest.raises(CallError, match="batch_size=64 is more than the 24 samples"):
        resolve(
            make_request(
                str(photographs),
                transforms="imagenet-train",
                split="train",
                batch_size=64,
                device="cpu",
            )
        )
    spec = resolve(
        make_request(
            str(photographs),
            transforms="imagenet-train",
            split="train",
            batch_size=None,
            device="cpu",
        )
    )
    assert spec.options.batch_size == 24
    close(spec)


def test_large_images_make_the_default_batch_smaller(photographs, monkeypatch):
    """A batch of 256 images of 12 megapixels takes 9 GiB, and several are in memory at a time."""

    def size():
        return make_request(
            str(photographs),
            transforms="imagenet-train",
            split="train",
            batch_size=None,
            device="cpu",
        ).batch_size

    sizes = SampleTables(open_split(str(photographs), "train")).image_sizes()
    monkeypatch.setattr(bench_command, "_BATCH_BYTES", 9 * 3 * sizes.mean_pixels)
    assert size() == 8
    monkeypatch.setattr(bench_command, "_BATCH_BYTES", 1)
    assert size() == 1

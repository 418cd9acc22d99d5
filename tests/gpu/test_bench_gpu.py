"""`loaders bench` and `loaders tune` on a GPU."""

import json

import pytest
import torch
from click.testing import CliRunner
from helpers.gpu import write_photos

import loaders
from loaders.bench.measure import find_machine
from loaders.cli import main
from loaders.devices import Device, device_name, gpu_bus_id

QUICK = ("--transforms", "imagenet-train", "--device", "gpu", "--batch-size", "16", "--seconds", "0.05",
         "--repeats", "2")  # fmt: skip

SCRIPT = """
import torch
net = torch.nn.Linear(3, 3).cuda()
def step(images, labels):
    torch.nn.functional.cross_entropy(net(images.float().mean((2, 3))), labels).backward()
"""


@pytest.fixture
def photographs(tmp_path):
    return write_photos(tmp_path / "photographs", [(480, 360)] * 48, classes=3, shards=2)


def run(*arguments):
    done = CliRunner().invoke(main, [*map(str, arguments)], standalone_mode=False)
    assert (done.exception, done.return_value or 0) == (None, 0), done.output
    return done.stdout


def test_bench(photographs, tmp_path):
    name = device_name(Device("gpu", 0))
    assert name == torch.cuda.get_device_name(0)
    assert gpu_bus_id(0).count(":") == 2
    assert find_machine(Device("gpu", 0), 4).device == name
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    results = json.loads(run("bench", photographs, *QUICK, "--model", f"{script}:step", "--json"))
    assert [*results["stages"]] == ["reading", "decoding", "augmentation", "delivery"]
    assert results["machine"]["device"] == name
    assert 0 <= results["subject"]["options"]["hw_decoder_load"] <= 1
    assert min(results["model"]["alone"]["repeats"] + results["model"]["fed"]["repeats"]) > 0


def test_tune(photographs, tmp_path):
    out = tmp_path / "tune.json"
    run("tune", photographs, *QUICK, "--out", out)
    (entry,) = json.loads(out.read_text())["entries"]
    assert entry["device"] == device_name(Device("gpu", 0))
    options = {"transforms": "imagenet-train", "batch_size": 16, "tuning": out}
    with loaders.build(photographs, device="gpu", **options) as loader:
        assert loader.options.hw_decoder_load == entry["options"]["hw_decoder_load"]
        assert loader.options.num_threads == entry["options"]["num_threads"]
    message = f"the device was '{entry['device']}', and here it is "
    with pytest.raises(loaders.CallError, match=message):
        loaders.build(photographs, device="cpu", **options)

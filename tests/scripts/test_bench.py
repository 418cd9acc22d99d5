"""The benchmarks as commands: a call that would measure nothing is refused, and a small one comes to its end."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(name, *arguments):
    command = [sys.executable, ROOT / "scripts" / "bench" / f"{name}.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "loaders", "zzz"], "--only zzz: no side's name contains it; there are loaders.build, torchvision"),
        (["--preset", "nope"], "'nope' is neither a YAML file nor one of imagenet-train, imagenet-eval, "),
        (["--count", "3", "--batch-size", "4"], "--count 3 is less than a batch of 4"),
    ],
)
def test_wrong_calls_of_load(photos, arguments, words):
    done = bench("load", "--images", photos, *arguments)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert words in line


def test_load_takes_the_loader_apart(photos, tmp_path):
    done = bench("load", "--images", photos, "--count", 16, "--batch-size", 4, "--repeats", 1, "--device", "cpu",
                 "--work", tmp_path, "--only", "loaders", "apart")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in (
        "  loaders.build ",
        "  reading ",
        "  + decoding ",
        "  + augmentation ",
        "  + torch's ",
        "bottleneck: ",
    ):
        assert done.stdout.count(f"\n{line}") == 1
    assert "DALI by hand  " not in done.stdout


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no file system in memory")
def test_what_is_in_memory_is_never_cold(photos):
    done = bench("index", "--images", photos, "--cold", "--work", "/dev/shm/no such folder")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "--cold: /dev/shm/no such folder is in memory and cannot be cold; name a folder on a disk with --work"
    )
    assert not Path("/dev/shm/no such folder").exists()

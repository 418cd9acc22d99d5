"""Type checkers know what a batch is."""

import inspect
import re
import subprocess
import sys

import pytest

import loaders
from loaders.options import BuildOptions

SCRIPT = """
import loaders

default = loaders.build("data", transforms="imagenet-train", batch_size=4)
for batch in default:
    reveal_type(batch)
    images, labels = batch
    reveal_type(images)
    step: loaders.Batch = batch
for array, numbers in loaders.build("data", transforms=[], framework="numpy", device="cpu"):
    reveal_type(array)
for image, key in loaders.build("data", transforms=[], fields=("image", "key")):
    reveal_type(key)
with loaders.build("data", transforms=[], batch_size=2) as opened:
    reveal_type(next(iter(opened)))
next(default)
loaders.build("data", transforms=[], dtype="flaot16")
loaders.build("data", transforms=[], num_workers=4)
"""


def test_mypy_knows_the_batches(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", "script.py"],
        check=False, cwd=tmp_path, env={"MYPYPATH": str(loaders.__path__[0] + "/..")}, capture_output=True, text=True,
    )  # fmt: skip
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    batch = "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
    assert [revealed[0], revealed[1], revealed[3], revealed[4]] == [batch, "torch._tensor.Tensor", "Any", batch]
    assert revealed[2].startswith("numpy.ndarray[")
    wrong = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    expected = ("next(default)", "flaot16", "num_workers")
    assert wrong == {n for n, line in enumerate(SCRIPT.splitlines(), 1) if any(each in line for each in expected)}


def test_every_argument_of_build_has_a_type():
    arguments = inspect.signature(loaders.build).parameters
    of_overloads = {"dataset", "transforms", "views", "fields", "framework", "other"}
    assert set(BuildOptions.__annotations__) - {"drop_last"} == set(arguments) - of_overloads
    given = {name: BuildOptions.__annotations__[name].__forward_arg__ for name in set(arguments) - of_overloads}
    assert given == {name: arguments[name].annotation for name in given}

"""Type checkers know what a batch is."""

import inspect
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import torch

import loaders
from loaders.build import BuildOptions
from loaders.options import (
    _DTYPES,
    BuildRequest,
    DType,
    DTypeAlias,
    canonical_dtype,
)

BATCHES = """
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
"""


#: Lines that mypy must refuse end with a comment.
ARGUMENTS = """
import os

import numpy as np
import torch
from loaders import build

build("data", transforms=[], device="auto", dtype="float16")
build("data", transforms=[], device="cuda", dtype=torch.float32)
build("data", transforms=[], device="cuda:1", dtype=np.float32)
build("data", transforms=[], device=f"cuda:{os.environ['LOCAL_RANK']}", dtype=np.dtype("uint8"))
build("data", transforms=[], device=torch.device("cuda", 1), dtype="fp16")
build("data", transforms=[], device=0, dtype="torch.bfloat16", fields=("image",))
build("data", transforms=[], device=1.5)  # wrong
build("data", transforms=[], device=["cuda"])  # wrong
build("data", transforms=[], device=None)  # wrong
build("data", transforms=[], dtype="float64")  # wrong
build("data", transforms=[], dtype=np.float64)  # wrong
build("data", transforms=[], dtype=np.dtype("int64"))  # wrong
build("data", transforms=[], dtype=torch.zeros(1))  # wrong
build("data", transforms=[], dtype=16, fields=("image",))  # wrong
build("data", transforms=[], dtype="flaot16")  # wrong
build("data", transforms=[], num_workers=4)  # wrong
next(build("data", transforms=[]))  # wrong
"""


#: The names of torch that the scripts and `loaders.build` use. To read all of torch takes mypy ten
#: seconds.
TORCH = {
    "__init__.pyi": """
        from typing import Any
        from torch._C import device as device, dtype as dtype
        from torch._tensor import Tensor as Tensor
        float32: dtype
        def zeros(*size: int) -> Tensor: ...
        def __getattr__(name: str) -> Any: ...
    """,
    "_C.pyi": """
        class dtype: ...
        class device:
            def __init__(self, type: str, index: int = ...) -> None: ...
    """,
    "_tensor.pyi": "class Tensor: ...",
}


#: Modules of `loaders` without types of arguments or batches.
SKIPPED = (
    "transforms.*", "dali.*", "dataset.*", "samplers.*", "preview.*", "resolve", "memory", "spec",
    "checkpoint", "explain", "bad_images", "batch", "ranks", "tuning",
)  # fmt: skip


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """What mypy prints for both scripts."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("types")
    (folder / "batches.py").write_text(BATCHES)
    (folder / "arguments.py").write_text(ARGUMENTS)
    (folder / "stubs" / "torch").mkdir(parents=True)
    for name, text in TORCH.items():
        (folder / "stubs" / "torch" / name).write_text(textwrap.dedent(text))
    # Silent imports: mypy skips the bodies of functions in imported modules, which it checks with
    # the whole tree. It does not read at all what the types of `build` do not need.
    skipped = ["manifests.*", *(f"loaders.{name}" for name in SKIPPED)]
    config = folder / "mypy.ini"
    config.write_text(
        f"[mypy]\nfollow_imports = silent\n[mypy-{','.join(skipped)}]\nfollow_imports = skip\n"
    )
    options = ["--config-file", config, "--cache-dir", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, folder / "batches.py", folder / "arguments.py"],
        check=False, cwd=Path(loaders.__path__[0]).parent, capture_output=True, text=True,
        env={**os.environ, "MYPYPATH": str(folder / "stubs")},
    )  # fmt: skip
    return done.stdout


def test_mypy_knows_the_batches(output):
    revealed = re.findall(r'Revealed type is "(.*)"', output)
    batch = "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
    assert [*revealed[:2], *revealed[3:]] == [batch, "torch._tensor.Tensor", "Any", batch]
    assert revealed[2].startswith("numpy.ndarray[")


def test_mypy_accepts_what_build_accepts(output):
    wrong = {n for n, line in enumerate(ARGUMENTS.splitlines(), 1) if "# wrong" in line}
    assert {int(n) for n in re.findall(r"arguments.py:(\d+): error:", output)} == wrong
    assert "batches.py: error" not in output


def test_the_names_of_torch_have_the_types_that_mypy_reads():
    assert torch._tensor.Tensor is torch.Tensor
    assert [type(torch.zeros(1)), type(torch.float32)] == [torch.Tensor, torch.dtype]
    assert isinstance(torch.device("cuda", 1), torch.device)


def test_every_other_name_of_a_dtype_has_a_type():
    names = {*get_args(DTypeAlias), *get_args(DType)}
    assert {canonical_dtype(name) for name in names} == set(get_args(DType))
    assert names >= {
        *_DTYPES,
        *map(str, (torch.float16, torch.bfloat16, torch.float32, torch.uint8)),
    }


def test_every_argument_of_build_has_a_type():
    arguments = dict(inspect.signature(loaders.build).parameters)
    of_overloads = {"dataset", "transforms", "views", "fields", "framework", "other", "positional"}
    assert set(BuildOptions.__annotations__) - {"drop_last"} == set(arguments) - of_overloads
    given = {
        name: BuildOptions.__annotations__[name].__forward_arg__
        for name in set(arguments) - of_overloads
    }
    assert given == {name: arguments[name].annotation for name in given}
    declared = {each.name: each.default for each in fields(BuildRequest) if each.name != "dataset"}
    for name in ("dataset", "positional", "other"):
        del arguments[name]
    assert declared == {name: each.default for name, each in arguments.items()}

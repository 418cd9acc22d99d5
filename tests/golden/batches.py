"""Record what loaders return: shapes, values, digests and small copies of the pixels; and their texts.

A record has a text and, if it has images, a file of arrays. On the CPU and with the library
versions that were recorded, the digests must be equal. Elsewhere the text is compared without the
digests, and pixels may differ by one level of 255.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from golden.recording import cleaned
from numpy.typing import NDArray

import loaders
from manifests.errors import DatasetError

RECORDS = Path(__file__).with_name("records") / "loaders"

#: Libraries that decide the pixels and the texts of a loader.
LIBRARIES = ("numpy", "nvidia-dali-cuda120", "nvidia-dali-cuda130", "onnxruntime", "torch")

#: Arguments of each loader, unless a scenario gives others.
_DEFAULTS = {
    "batch_size": 4, "device": "cpu", "num_threads": 1, "framework": "numpy", "dtype": "float32",
    "shuffle": False,
}  # fmt: skip

#: The address of a function in its text.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

#: Arrays of at most this many values are in the text.
_SHORT = 64

#: Largest difference elsewhere: of levels, which are stored rounded, and of normalized values.
_LEVEL, _NORMALIZED = 1.5, 0.02


def machine() -> dict[str, str]:
    """Return the CPU and the versions of libraries for which digests are valid."""
    found = {}
    for name in LIBRARIES:
        with suppress(ModuleNotFoundError):
            found[name] = version(name)
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("cpu family", "model", "model name"):
            found[name.strip()] = value.strip()
    return found


class BatchRecorder:
    """Records loaders of one scenario.

    Args:
        make: returns the folder of a dataset, by its name in `golden.datasets`.
        root: what the paths of all folders begin with; records have ``DIR`` instead.
        scratch: an empty folder for files that a scenario writes.

    """

    def __init__(self, make: Callable[[str], Path], root: Path, scratch: Path):
        self.dataset = make
        self.scratch = scratch
        self.arrays: dict[str, NDArray[Any]] = {}
        self._lines: list[str] = []
        self._root = root
        self._case = ""
        self._cases = 0

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def note(self, text: str) -> None:
        text = _ADDRESS.sub("", text)
        self._lines += ["", f"# {text}"]
        self._cases += 1
        self._case = f"{self._cases} {text[:40]}".replace("/", "|")

    def lines(self, text: str) -> None:
        """Record a text."""
        text = cleaned(
            _ADDRESS.sub("", text), {str(self.scratch): "SCRATCH", str(self._root): "DIR"}
        )
        self._lines += [f"| {line}".rstrip() for line in text.splitlines()]

    def attempt(self, title: str, action: Callable[[], object]) -> Any:
        """Call a function, and record its warnings and its error. Return what it returns."""
        self.note(title)
        return self._guarded(action)

    def _guarded(self, action: Callable[[], object]) -> Any:
        result: object = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = action()
            except (DatasetError, TypeError, ValueError) as error:
                self.lines(f"{type(error).__name__}: {error}")
        for warning in caught:
            if warning.category is not DeprecationWarning:
                self.lines(f"warning: {warning.message}")
        return result

    def build(self, dataset: object, title: str = "", **options: Any) -> Any:
        """Return a loader of a dataset or of several; `None` if it is refused."""
        names = dataset if isinstance(dataset, list) else [dataset]
        folders = [self.dataset(name) for name in names]
        if "sampler" in options or "mix" in options:
            options = {"shuffle": None, **options}
        given = folders if isinstance(dataset, list) else folders[0]
        described = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return self.attempt(
            title or f"{dataset}: {described}",
            lambda: loaders.build(given, **{**_DEFAULTS, **options}),
        )

    def batches(
        self, dataset: object, title: str = "", *, epochs: int = 1, most: int = 1, **options: Any
    ) -> None:
        """Record the first batches of epochs of a loader.

        Args:
            dataset: the name of the dataset, or a list of names.
            title: what the record calls the loader; empty means its options.
            epochs: number of epochs.
            most: number of batches of an epoch; 0 means all.
            options: arguments of `loaders.build`.

        """
        loader = self.build(dataset, title, **options)
        if loader is None:
            return
        fields = loader.options.fields

        def read() -> None:
            for epoch in range(epochs):
                for number, batch in enumerate(loader):
                    for name, value in zip(fields, batch, strict=True):
                        self.value(f"{epoch}.{number} {name}", value)
                    if number + 1 == most:
                        break

        with loader:
            self._lines.append(f"  {len(loader)} batches")
            self._guarded(read)

    def explained(self, dataset: object, title: str = "", **options: Any) -> None:
        """Record what a loader says about itself."""
        loader = self.build(dataset, title, **options)
        if loader is not None:
            with loader:
                self.lines(loader.explain())

    def value(self, name: str, value: object) -> None:
        """Record a value of a batch, or a tuple of one for each view."""
        if isinstance(value, tuple):
            for number, each in enumerate(value):
                self.value(f"{name}[{number}]", each)
            return
        if isinstance(value, list):
            self._lines.append(f"  {name}: {value!r}")
            return
        kind = f"{value.dtype}".removeprefix("torch.")
        array = _to_numpy(value)
        self._lines.append(f"  {name}: {kind} {array.shape}")
        if array.size <= _SHORT:
            short = array if array.dtype.kind in "biu" else np.round(array.astype(float), 6)
            self._lines[-1] += f" {short.ravel().tolist()}"
            return
        data = np.ascontiguousarray(array).tobytes()
        self._lines.append(f"  {hashlib.sha256(data).hexdigest()}  {name}")
        self.arrays[f"{self._case} {name}"] = _stored(array)

    def exported(self, folder: Path) -> None:
        """Record the files of an export: texts as they are, arrays as values of batches are."""
        for path in sorted(folder.rglob("*.*")):
            name = str(path.relative_to(folder))
            if path.suffix == ".npy":
                self.value(name, np.load(path))
                continue
            self._lines.append(f"  {name}")
            if path.suffix in (".json", ".txt", ".pbtxt"):
                # Differences of rounding are not the same on all machines.
                self.lines(re.sub(r"\b\d(\.\d+)?e-\d+\b", "TINY", path.read_text("utf-8")))


def _to_numpy(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    kind = str(value.dtype)
    return np.asarray(value.float() if kind == "torch.bfloat16" else value)


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy that takes little space: levels as bytes, normalized values as halves."""
    if array.dtype.kind in "iu":
        return array
    levels = array.min() >= 0 and 2 < array.max() <= 255
    return np.round(array).astype(np.uint8) if levels else array.astype(np.float16)


def far_apart(recorded: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> list[str]:
    """Return a line for each array that differs by more than a level."""
    lines = []
    for name in sorted(recorded.keys() | found.keys()):
        if name not in recorded or name not in found:
            lines.append(f"{name}: only {'found' if name in found else 'recorded'}")
            continue
        old, new = recorded[name].astype(float), found[name].astype(float)
        allowed = _NORMALIZED if recorded[name].dtype.kind == "f" else _LEVEL
        if old.shape != new.shape:
            lines.append(f"{name}: {old.shape} is now {new.shape}")
        elif old.size and np.abs(old - new).max() > allowed:
            lines.append(f"{name}: differs by {np.abs(old - new).max():.3g}")
    return lines

"""What ``loaders export`` does: check that a server can run the transforms, and write them."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from loaders.bench.command import make_request
from loaders.dataset.split import OpenSplit, open_splits
from loaders.dataset.tables import SampleTables
from loaders.export.folder import RECORD, check_folder, golden_batch, npy, write_folder
from loaders.options import DType, Layout
from loaders.resolve import one_size, resolve
from loaders.samplers.choose import PLAIN_SAMPLERS
from loaders.spec import LoaderSpec
from loaders.transforms.argument import ParsedTransforms, parse_transforms
from loaders.transforms.base import BatchOperation, Size
from loaders.transforms.parse import Recipe
from manifests.errors import CallError
from manifests.pixels import RGB8
from manifests.process.program import release
from manifests.process.text import plural, printable, shown
from manifests.remote.url import refuse_url

#: What an export is for.
Target: TypeAlias = Literal["triton", "onnx"]

#: Triton's DALI backend runs dali.py only from a path of these characters.
_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")

#: Split that the golden batch comes from if none is named: the first of these.
_SPLITS = ("val", "test", "train")

#: A GPU that decodes does so on the CUDA cores. The hardware decoder gives slightly other pixels,
#: and its share depends on the size of the batch, so the result for an image would too.
_HW_DECODER_LOAD = 0.0

#: A text of each record.
_CREATOR = "loaders export"


@dataclass(frozen=True, slots=True)
class Written:
    """A finished export.

    Attributes:
        folder: where it is.
        files: paths of its files in the folder.
        note: how much its images differ from the images of the loader.

    """

    folder: str
    files: tuple[str, ...]
    note: str


def export(
    dataset: str,
    out: str,
    *,
    transforms: Any,
    target: Target,
    device: Any = "auto",
    split: str | None = None,
    name: str = "preprocess",
    max_batch_size: int = 64,
    samples: int = 8,
    dtype: DType = "float32",
    layout: Layout = "NCHW",
    overwrite: bool = False,
) -> Written:
    """Write the transforms of an evaluation for a server, with a golden batch of a dataset.

    Args:
        dataset: folder of the dataset.
        out: folder to write: with Triton the model repository that gets the model.
        transforms: as in `loaders.build`.
        target: ``"triton"`` or ``"onnx"``.
        device: ``"cpu"``, ``"gpu"`` or ``"auto"``: where the server runs them.
        split: split of the golden batch. `None` means ``"val"``, ``"test"`` or ``"train"``, or the
            first split.
        name: name of Triton's model.
        max_batch_size: images in the largest batch of the server.
        samples: images in the golden batch, at most `max_batch_size`.
        dtype: type of the image values: ``"float32"``, ``"float16"`` or ``"uint8"``.
        layout: order of the axes.
        overwrite: an export of this name is replaced.

    Raises:
        CallError: an argument is wrong, or the transforms cannot be exported.
        DamagedError: the dataset is damaged.
        StorageError: the folder cannot be written.

    """
    if not _NAME.fullmatch(name):
        raise CallError(f"--name {printable(name)}: use letters, digits and underscores only")
    if not out:
        raise CallError("OUT is empty", hint="name a folder")
    dataset = os.fspath(dataset)
    refuse_url(
        dataset,
        f"{printable(dataset)} is in an object store",
        hint="name a dataset on a local disk",
    )
    # A model repository of Triton has a folder for each model.
    folder = os.path.join(out, name) if target == "triton" else out
    # Check everything that is cheap before images are decoded.
    check_folder(folder, overwrite=overwrite)
    opened = _split(dataset, split)
    if opened.manifest.kind != RGB8:
        raise CallError(
            f"{printable(dataset)} has {opened.manifest.kind}, but models are exported for 8-bit RGB",
            hint="call the loader's transforms in your server, or name another dataset",
        )
    parsed = parse_transforms(transforms, split=opened.name, image_size=lambda: _size_of(opened))
    check_exportable(parsed)
    if target == "triton" and opened.manifest.store == "raw":
        raise CallError(
            f"{printable(dataset)} stores pixels, but the model decodes images as clients have"
            " them",
            hint="name a dataset that stores encoded images",
        )
    if target == "onnx":
        from loaders.export.onnx_model import require_onnx

        # Its absence is an error before the work.
        require_onnx()
    count = max(1, min(samples, max_batch_size, opened.samples))
    request = make_request(
        dataset, transforms=transforms, split=opened.name, batch_size=count, device=device
    )
    labels = ("label",) if opened.manifest.labels.is_class else ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the speed of training
        spec = resolve(
            replace(
                request,
                shuffle=False,
                framework="numpy",
                last_batch="partial",
                fields=("image", "index", *labels),
                dtype=dtype,
                layout=layout,
            )
        )
    # Not in the request, where it would choose the GPU's decoder.
    spec = replace(spec, options=replace(spec.options, hw_decoder_load=_HW_DECODER_LOAD))
    golden = golden_batch(spec)
    # The server has larger batches than the golden one.
    served = replace(spec, options=replace(spec.options, batch_size=max_batch_size))
    if target == "triton":
        from loaders.export.triton import triton_model as make
    else:
        from loaders.export.onnx_model import onnx_model as make
    made = make(served, golden)
    files = dict(made.files)
    if golden.labels is not None:
        files["golden/labels.npy"] = npy(golden.labels)
    if opened.manifest.classes:
        # One name per line, as Triton reads them.
        lines = [f"{printable(each)}\n" for each in opened.manifest.classes]
        files["labels.txt"] = _encoded("".join(lines))
    files[RECORD] = _record(served, target, len(golden.encoded), made.difference)
    write_folder(folder, files)
    return Written(folder, tuple(sorted(files)), made.note)


def _split(dataset: str, name: str | None) -> OpenSplit:
    splits = {each.name: each for each in open_splits(dataset, name)}
    for preferred in _SPLITS:
        if preferred in splits:
            return splits[preferred]
    return next(iter(splits.values()))


def _size_of(split: OpenSplit) -> Size | None:
    tables = SampleTables(split)
    size = one_size(split, tables)
    tables.close()
    return size


def _record(
    spec: LoaderSpec, target: Target, samples: int, difference: dict[str, float | str]
) -> bytes:
    from loaders.dali.graph import dali

    options = spec.options
    record: dict[str, Any] = {
        "creator": _CREATOR,
        "version": release(),
        "dali": dali.__version__,
        "for": target,
        "dataset": os.path.basename(os.path.normpath(spec.split.folder)),
        "split": spec.split.name,
        "samples": samples,
        "operations": [repr(each) for each in spec.recipe.operations],
        "device": options.device.kind,
        "dtype": options.dtype,
        "layout": options.layout,
    }
    if target == "triton":
        record["max_batch_size"] = options.batch_size
    record["difference from the loader"] = difference
    return _encoded(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _encoded(text: str) -> bytes:
    # A name of a folder or class may have surrogates.
    return text.encode("utf-8", "backslashreplace")


def as_text(written: Written) -> str:
    """Return what the command prints."""
    return (
        f"{printable(written.folder)} is written: {plural(len(written.files), 'file')};"
        f" {written.note}"
    )


def check_exportable(parsed: ParsedTransforms) -> None:
    """Check that nothing keeps a server from giving the images of the loader.

    Raises:
        CallError: a transform draws random values, mixes images, or is a Python function; there are
            views, or a sampler in the config. The message names them all.

    """
    named = (parsed.sampler or {}).get("name")
    problems = list(_recipe_problems(parsed.recipe))
    if named not in PLAIN_SAMPLERS:
        text = printable(named[:100]) if isinstance(named, str) else shown(named)
        problems.insert(
            0,
            f"the config's sampler {text} chooses samples, but a server gets its images from"
            " requests",
        )
    if problems:
        raise CallError(
            "these transforms cannot be exported: " + "; ".join(problems),
            hint="use the transforms of the evaluation, for example imagenet-eval",
        )


def _recipe_problems(recipe: Recipe) -> Iterator[str]:
    if recipe.views:
        yield "views make several tensors of an image"
    for item in recipe.all_items:
        if item.function is not None:
            yield (
                f"{item.location}, {item.description}, is a Python function, which a server does"
                " not have"
            )
        elif any(isinstance(each, BatchOperation) for each in item.operations):
            yield f"{item.location}, {item.description}, mixes the images of a batch"
    if recipe.patchify[0] is not None:
        yield "Patchify cuts images into patches, and a server returns images of one size"
        return
    # With views, the operations of each would have to be tried, and they are refused anyway.
    if not recipe.views:
        from loaders.dali.serving import find_random

        for item in find_random(recipe.items, recipe.operations[0]):  # type: ignore[arg-type]
            yield f"{item.location}, {item.description}, draws random values"

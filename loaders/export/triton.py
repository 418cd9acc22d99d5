"""The files of a Triton model: the pipeline, its configuration, and the golden batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loaders.arrays import Array
from loaders.dali.serving import INPUT, OUTPUT, run_serialized, serialize, serving_source
from loaders.export.folder import Golden, npy, padded
from loaders.options import DType
from loaders.spec import LoaderSpec
from loaders.transforms.base import ImageSpec
from manifests.errors import CallError

#: Largest mean difference from the loader's images as a share of their range.
_MAX_DIFFERENCE = 0.02

TRITON_TYPES: dict[DType, str] = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "uint8": "TYPE_UINT8",
}

_CONFIG = """\
# Written by `loaders export`: decodes and transforms encoded images (JPEG, PNG, ...) on the {device}.
backend: "dali"
max_batch_size: {max_batch_size}
input [
  {{
    # One encoded image per row, with zeros after the shorter ones.
    name: "{input}"
    data_type: TYPE_UINT8
    dims: [ -1 ]
    allow_ragged_batch: true
  }}
]
output [
  {{
    name: "{output}"
    data_type: {data_type}
    dims: [ {dims} ]
  }}
]
instance_group [
  {{
    kind: {kind}
    count: 1
  }}
]
parameters {{
  key: "num_threads"
  value {{ string_value: "{num_threads}" }}
}}
dynamic_batching {{
}}
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export writes.

    Attributes:
        files: content by path.
        difference: how much the exported images differ from the loader's; part of the
            record.
        note: the difference as a sentence.

    """

    files: dict[str, bytes]
    difference: dict[str, float | str]
    note: str


def triton_model(spec: LoaderSpec, golden: Golden) -> Exported:
    """Return the files of a model for Triton's DALI backend.

    Args:
        spec: a loader of the recipe, whose batch size is the largest batch of the server.
        golden: images, and what the loader makes of them.

    Raises:
        CallError: DALI has no Python function for a transform, or the pipeline gives other images.

    """
    options = spec.options
    # A server with another version of DALI runs the source instead of the serialized pipeline.
    source = serving_source(spec.fusion.operations, options)
    serialized = serialize(source)
    encoded = padded(golden.encoded)
    # Run what was written, not the pipeline that it was made from.
    images = run_serialized(serialized, encoded, options.device)
    largest = _compare(images, golden.images)
    same = "the same as"
    if largest > 0:
        same = f"up to {largest:.3g} different from"
    return Exported(
        {
            "1/model.dali": serialized,
            "1/dali.py": source.encode(),
            "config.pbtxt": config(spec).encode(),
            "golden/encoded.npy": npy(encoded),
            "golden/images.npy": npy(golden.images),
        },
        {"unit": "value of the output", "largest": largest},
        f"its images of the golden batch are {same} those of the loader",
    )


def _compare(images: Array, golden: Array) -> float:
    """Return the largest difference. Two JPEG decoders of a GPU may differ a little.

    Raises:
        CallError: these are other images.

    """
    expected = golden.astype(np.float64)
    differences = np.full(1, np.inf)
    if images.shape == golden.shape:
        differences = np.abs(images.astype(np.float64) - expected)
    # Written so that a mean of NaN is refused.
    if not differences.mean() <= _MAX_DIFFERENCE * float(np.ptp(expected)):
        raise CallError(
            "the exported pipeline does not give the images of the loader, so nothing was written",
            hint="report it with the transforms and the version of DALI",
        )
    return float(differences.max())


def config(spec: LoaderSpec) -> str:
    """Return ``config.pbtxt``."""
    options = spec.options
    device = "GPU" if options.device.is_gpu else "CPU"
    return _CONFIG.format(
        device=device,
        max_batch_size=options.batch_size,
        input=INPUT,
        output=OUTPUT,
        data_type=TRITON_TYPES[options.dtype],
        dims=", ".join(map(str, output_dims(spec.recipe.output, options.layout))),
        kind=f"KIND_{device}",
        num_threads=options.num_threads,
    )


def output_dims(output: ImageSpec, layout: str) -> tuple[int, ...]:
    """Return the dimensions of one image in a batch."""
    height, width = output.size or (0, 0)
    dims = (height, width, output.channels)
    if layout == "NCHW":
        dims = (output.channels, height, width)
    if not output.crops:
        return dims
    return (output.crops, *dims)

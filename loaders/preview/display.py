"""Make the values of a finished batch visible: undo the normalization and the order of channels and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.preview.preview import Pixels
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.decode_normalize import Normalize, Rescale

_Values = NDArray[np.float64]


class Display:
    """Turns images of a finished batch into pixels.

    Attributes:
        note: what is done, for people.

    """

    def __init__(
        self,
        operations: Sequence[Operation],
        output: ImageSpec,
        layout: str,
        functions: Sequence[Any],
    ) -> None:
        """Find out how values relate to brightness.

        Args:
            operations: all operations on each image, in order.
            output: spec of the finished images.
            layout: ``"NCHW"`` or ``"NHWC"``.
            functions: the user's functions of a batch, whose effect is not known.

        """
        self._factor, self._offset = _affine(operations)
        self._layout, self._space, self._unknown = layout, output.color_space, bool(functions)
        self.note = self._describe(functions)

    def pixels(self, image: NDArray[Any]) -> Pixels:
        """Convert one image, [C, H, W] or [H, W, C], to uint8 [H, W, 3]."""
        values = np.asarray(image, np.float64)
        if self._layout == "NCHW":
            values = values.transpose(1, 2, 0)
        values = values[..., :3]
        values = _stretched(values) if self._unknown else self._undo(values)
        if values.shape[2] < 3:
            values = np.repeat(values[..., :1], 3, axis=2)
        if self._space == "BGR":
            values = values[..., ::-1]
        return np.ascontiguousarray(np.nan_to_num(values).clip(0, 255).round().astype(np.uint8))

    def _undo(self, values: _Values) -> _Values:
        channels = values.shape[2]
        return (values - self._offset[:channels]) / self._factor[:channels]

    def _describe(self, functions: Sequence[Any]) -> str:
        if functions:
            names = ", ".join(getattr(each, "__name__", type(each).__name__) for each in functions)
            return (
                "Values are stretched from the smallest to the largest of each image, after"
                f" {names}."
            )
        space = (
            f" The channels are {self._space}." if self._space not in ("RGB", "BGR", "GRAY") else ""
        )
        if np.array_equal(self._factor, np.ones(3)) and not self._offset.any():
            return f"Values are shown as they are, from 0 to 255.{space}"
        return (
            "The normalization is undone for display: the model gets values of which"
            f" {_numbers(self._offset)} is black and {_numbers(255 * self._factor + self._offset)}"
            f" is white.{space}"
        )


def _affine(operations: Sequence[Operation]) -> tuple[_Values, _Values]:
    """Return factor and offset of each channel: a pixel value p from 0 to 255 has become ``p * factor + offset``."""
    factor, offset = np.ones(3), np.zeros(3)
    for operation in operations:
        if isinstance(operation, Rescale):
            factor, offset = factor / 255, offset / 255
        elif isinstance(operation, Normalize):
            mean, std = np.array(operation.mean), np.array(operation.std)
            factor, offset = factor * operation.scale / std, (offset * operation.scale - mean) / std
    return factor, offset


def _stretched(values: _Values) -> _Values:
    low, high = np.nanmin(values), np.nanmax(values)
    return (values - low) * (255 / (high - low) if high > low else 0.0)


def _numbers(values: _Values) -> str:
    return f"({', '.join(f'{value:.2f}' for value in values)})"

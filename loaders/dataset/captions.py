"""The field ``"caption"`` of samples with several texts: one of the texts, or all.

NumPy only: imports neither torch nor DALI.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from loaders.arrays import Array, Floats, Ints, bounds_of
from manifests.errors import CallError
from manifests.labels import CAPTIONS
from manifests.process.text import plural

if TYPE_CHECKING:
    import pyarrow as pa

    # `import loaders` needs no sample table.
    from loaders.dataset.tables import SampleTables

#: Largest weight of a text: sums of them stay finite.
MAX_WEIGHT = 1e30

#: Which text of a sample a batch has.
CaptionChoice: TypeAlias = Literal["random", "first", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class Captions:
    """The texts of all samples, and which of them a batch has.

    Attributes:
        texts: the texts, one sample after the other. Arrow takes half of the memory of Python.
        starts: the texts of row r are ``texts[starts[r] : starts[r + 1]]``, int64 [samples + 1].
        choice: which text of a sample is taken.
        weights: how often each text is taken, float64 [texts]. `None` if all texts are alike.

    """

    texts: pa.Array
    starts: Ints
    choice: CaptionChoice
    weights: Floats | None = None

    def take(self, rows: Ints, draws: Floats) -> list[Any]:
        """Return the text of each row, or the list of its texts.

        Args:
            rows: int64 [B].
            draws: uniform numbers in [0, 1), [B].

        Returns:
            B texts; `None` for a sample without a text. With the choice ``"all"``, B lists.

        """
        import pyarrow as pa

        first = self.starts[rows]
        ends = self.starts[rows + 1]
        if self.choice == "all":
            lists = []
            for start, end in zip(first.tolist(), ends.tolist(), strict=True):
                lists.append(self.texts[start:end].to_pylist())
            return lists
        counts = ends - first
        if self.choice == "random" and self.weights is None:
            first += (draws * counts).astype(np.int64)
        elif self.choice == "random":
            first += self._weighted(first, counts, draws)
        texts: list[Any] = self.texts.take(pa.array(first, mask=counts == 0)).to_pylist()
        return texts

    def _weighted(self, first: Ints, counts: Ints, draws: Floats) -> Ints:
        """Return the place of the drawn text among the texts of each row."""
        if self.weights is None or not counts.any():
            return np.zeros_like(counts)
        # One row of sums for each sample, so that rounding does not depend on the batch.
        places = np.arange(int(counts.max(initial=0)))
        within = places < counts[:, None]
        at = np.where(within, first[:, None] + places, 0)
        sums = np.cumsum(np.where(within, self.weights[at], 0), axis=1)
        passed: Ints = (sums <= draws[:, None] * sums[:, -1:]).sum(axis=1)
        return np.minimum(passed, np.maximum(counts - 1, 0))


def read_captions(tables: SampleTables, choice: CaptionChoice, weights: str) -> Captions:
    """Read the column ``captions``.

    Args:
        tables: the sample tables.
        choice: which text of a sample is taken.
        weights: name of a column of lists with a number for each text; empty without weights, or
            if it is an array column.

    Raises:
        CallError: a column has other values.
        TableError: a table is missing or damaged.

    """
    texts, counts = tables.lists(CAPTIONS, "text", requested_by="fields")
    captions = Captions(texts, bounds_of(counts), choice)
    if not weights:
        return captions
    numbers, lengths = tables.lists(weights, "numbers", requested_by="caption_weights")
    return with_weights(captions, weights, np.asarray(numbers), lengths)


def with_weights(captions: Captions, name: str, numbers: Array, lengths: Ints) -> Captions:
    """Return captions with weights.

    Args:
        captions: the captions.
        name: the column of the weights, for messages.
        numbers: the weights, one sample after the other.
        lengths: number of weights of each sample, int64 [samples].

    Raises:
        CallError: a sample has another number of weights than texts, or its weights are negative,
            not finite, or all 0.

    """
    hint = "write one weight of at least 0 for each text, and join them again"
    counts = np.diff(captions.starts)
    wrong = np.flatnonzero(lengths != counts)
    if len(wrong):
        row = int(wrong[0])
        raise CallError(
            f"caption_weights={name!r} has {plural(int(lengths[row]), 'number')} for the sample in"
            f" row {row} of the split, which has {plural(int(counts[row]), 'text')}",
            hint=hint,
        )
    values = numbers.astype(np.float64)
    fits = np.isfinite(values) & (values >= 0) & (values <= MAX_WEIGHT)
    row_of = np.repeat(np.arange(len(counts)), counts)
    has_weight = np.bincount(row_of[fits], values[fits], len(counts)) > 0
    has_weight[counts == 0] = True
    has_weight[row_of[~fits]] = False
    if not has_weight.all():
        row = int(has_weight.argmin())
        start, end = captions.starts[row : row + 2].tolist()
        raise CallError(
            f"caption_weights={name!r} has {values[start:end].tolist()} for the sample in row {row}"
            f" of the split, not numbers from 0 to {MAX_WEIGHT:g} with a sum above 0",
            hint=hint,
        )
    return replace(captions, weights=values)

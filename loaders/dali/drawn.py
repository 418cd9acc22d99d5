"""What random transforms draw for each image of a batch, in words: for a preview."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loaders.arrays import Ints
from loaders.dali.bad_images import translate_error
from loaders.dali.graph import Node, Pipeline, RandomStreams, dali
from loaders.dali.pipeline import first_frames, make_pipeline
from loaders.dali.readers import derive_seed
from loaders.spec import LoaderSpec
from loaders.transforms.base import Operation

#: Values of one image: of each node, in the order in which `ShownStreams` got them.
_Values = Sequence[Any]


def describe_draws(spec: LoaderSpec) -> list[tuple[str, ...]]:
    """Return for each image of a loader's first batch what is drawn for it: one text, or one for each view.

    A second pipeline draws the same values as the loader's, and returns them instead of images.

    Raises:
        DamagedError: the size of an image cannot be read.

    """
    options = spec.options
    seed = derive_seed(options.seed, 0, options.ranks.rank)
    streams = ShownStreams(seed, options.batch_size, first_frames(spec))
    pipeline = make_pipeline(spec, streams, spec.order.upcoming(0, 0), seed=seed, started=0)
    try:
        return streams.texts(pipeline)
    except RuntimeError as error:
        raise translate_error(error, spec.split) from error


@dataclass(frozen=True, slots=True)
class _Description:
    """Describes one draw.

    Attributes:
        describe: takes the number of an image and its values.
        conditions: numbers of nodes, and the value that each must have.

    """

    describe: Callable[[int, _Values], str]
    conditions: list[tuple[int, int]] = field(default_factory=list)

    def text(self, image: int, values: _Values) -> str:
        """Return the description for an image; empty if a condition does not hold."""
        kept = all(values[node] == value for node, value in self.conditions)
        return self.describe(image, values) if kept else ""


class ShownStreams(RandomStreams):
    """The random values of a loader's first batch, with their descriptions."""

    def __init__(self, seed: int, batch_size: int, firsts: Ints | None) -> None:
        super().__init__(seed, firsts=firsts)
        self._samples = batch_size
        self._last_seed = 0
        self._nodes: list[Node] = []
        self._descriptions: list[_Description] = []
        self._views: list[int] = []

    def seed(self, owner: Operation, name: str, *, of_lane: bool = True) -> int:
        """Return a seed, and remember it; see `RandomStreams.seed`."""
        self._last_seed = super().seed(owner, name, of_lane=of_lane)
        return self._last_seed

    @property
    def shown(self) -> int:
        """The number of descriptions so far."""
        return len(self._descriptions)

    def show(self, describe: Callable[..., str], nodes: Callable[[], Sequence[Node]]) -> None:
        """Describe what was drawn for an image; see `RandomStreams.show`."""
        numbers = [self._add(node) for node in nodes()]
        self._descriptions.append(
            _Description(lambda _, values: describe(*(values[number] for number in numbers)))
        )

    def show_drawn(self, describe: Callable[[np.random.Generator, int], Sequence[str]]) -> None:
        """Describe what `from_numpy` draws for the first batch of the first epoch."""
        texts = describe(np.random.default_rng([self._last_seed, 0, 0]), self._samples)
        if self._firsts is not None:
            texts = [texts[first] for first in self._firsts]
        self._descriptions.append(_Description(lambda image, _: texts[image]))

    def show_only(self, first: int, node: Node, value: int = 1) -> None:
        """Keep the descriptions from number `first` on only for some images.

        See `RandomStreams.show_only`.
        """
        number = self._add(node)
        for each in self._descriptions[first:]:
            each.conditions.append((number, value))

    def next_view(self) -> None:
        """Begin the draws of a view; the draws before the first view are common to all."""
        self._views.append(self.shown)

    def texts(self, pipeline: Pipeline) -> list[tuple[str, ...]]:
        """Run a pipeline whose graph draws from this, and return the descriptions of each image and view."""
        values = self._values(pipeline)
        common = self._views[0] if self._views else self.shown
        bounds = [*self._views, self.shown]
        parts = [range(low, high) for low, high in itertools.pairwise(bounds)] or [range(0)]
        return [
            tuple(
                ", ".join(
                    filter(
                        None,
                        (
                            self._descriptions[at].text(image, values[image])
                            for at in (*range(common), *part)
                        ),
                    )
                )
                for part in parts
            )
            for image in range(self._samples)
        ]

    def _values(self, pipeline: Pipeline) -> list[_Values]:
        constants = {}
        for at, node in enumerate(self._nodes):
            if isinstance(node, dali.types.ScalarConstant):
                constants[at] = node.value
        drawn = [at for at in range(len(self._nodes)) if at not in constants]
        columns: dict[int, Sequence[Any]] = {
            at: [value] * self._samples for at, value in constants.items()
        }
        if drawn:
            pipeline.set_outputs(*(self._nodes[at] for at in drawn))
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", "The external source node"
                )  # some of its outputs are not needed here
                pipeline.build()
            columns |= {
                at: [*map(_plain, output)] for at, output in zip(drawn, pipeline.run(), strict=True)
            }
        return [
            [columns[at][image] for at in range(len(self._nodes))] for image in range(self._samples)
        ]

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


def _plain(tensor: Any) -> Any:
    """Return a tensor as array, or as number."""
    array = np.array(tensor)
    return array if array.ndim else array.item()

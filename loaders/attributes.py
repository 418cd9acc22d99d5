"""What a loader says about itself: its read-only attributes, and its `repr`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from loaders.arguments import WrongCallError
from loaders.dataset.bad_samples import BadSample, describe_bad_samples
from loaders.dataset.info import DatasetInfo
from loaders.frameworks import Framework
from loaders.options import ResolvedOptions
from loaders.progress import Progress
from loaders.spec import LoaderSpec


class LoaderAttributes:
    """The attributes of `loaders.loader.Loader`, which documents how it is used."""

    _spec: LoaderSpec
    _framework: Framework
    _progress: Progress
    _closed: bool
    #: Number of the iteration that a loop is in.
    _looping: int
    #: Why images could not be decoded, by their row in the split.
    _errors: dict[int, str]

    @property
    def spec(self) -> LoaderSpec:
        """Everything that was decided before the pipeline started."""
        return self._spec

    @property
    def options(self) -> ResolvedOptions:
        """Every option of `loaders.build` with its final value."""
        return self._spec.options

    @property
    def classes(self) -> tuple[str, ...]:
        """The dataset's class names in label order. Empty if the dataset does not name them."""
        return self._spec.split.manifest.classes

    @property
    def samples(self) -> int:
        """Number of samples in the split, over all ranks."""
        return self._spec.split.samples

    @property
    def batch_size(self) -> int:
        """Number of samples per batch on this rank."""
        return self.options.batch_size

    @property
    def epoch(self) -> int:
        """Number of the epoch, from 0: within a loop the epoch of the loop, otherwise of the next loop.

        After `load_state_dict`, ``for epoch in range(loader.epoch, epochs)`` therefore continues
        with the right one.
        """
        progress = self._progress
        return (
            progress.position.epoch if self._looping == progress.iteration else progress.next_epoch
        )

    @property
    def rank(self) -> int:
        """Number of this process among those that share an epoch, from 0."""
        return self.options.ranks.rank

    @property
    def world_size(self) -> int:
        """Number of processes that share an epoch."""
        return self.options.ranks.world_size

    @property
    def device(self) -> Any:
        """Where the tensors are: a `torch.device`, a device of JAX, a place of Paddle, or ``"cpu"`` for NumPy."""
        return self._framework.device(self.options.device)

    @property
    def dataset(self) -> DatasetInfo:
        """The dataset; its length is the number of samples in the split, over all ranks."""
        split = self._spec.split
        manifest = split.manifest
        return DatasetInfo(
            split.folder, split.name, split.samples, manifest.classes, manifest.label_type
        )

    @property
    def split(self) -> str:
        """Name of the split."""
        return self._spec.split.name

    @property
    def errors(self) -> tuple[BadSample, ...]:
        """The images that could not be decoded so far, by their row, also those before a checkpoint was loaded.

        With ``on_error="skip"`` or ``"replace"``, the loader continued without them.

        Raises:
            TableError: a sample table is missing or damaged.

        """
        return describe_bad_samples(self._spec.split, self._errors)

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is equal on every rank."""
        return self._spec.order.batches

    def __repr__(self) -> str:
        options, split = self.options, self._spec.split
        closed = ", closed" if self._closed else ""
        return (
            f"<Loader of {split.folder!r}, split {split.name!r}: epoch {self.epoch}, {len(self):,}"
            f" batches of {options.batch_size:,} ({', '.join(options.fields)}), rank {self.rank} of"
            f" {self.world_size}, {options.device}{closed}>"
        )

    if not TYPE_CHECKING:  # Type checkers report `next(loader)` by themselves.

        def __next__(self) -> NoReturn:
            raise WrongCallError(
                "a loader is not an iterator, because each loop over it is a new epoch",
                hint=(
                    "call next(iter(loader)) for one batch, or keep batches = iter(loader) and call"
                    " next(batches)"
                ),
            )

        def __getitem__(self, index: object) -> NoReturn:
            raise WrongCallError(
                "a loader has no samples by number, because it makes batches by itself",
                hint="loop over the loader in place of a DataLoader: for images, labels in loader",
            )

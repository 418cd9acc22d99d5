"""The checkpoint of a loader: `State`, and the choices of a loader that it depends on.

Imports neither torch nor DALI.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeAlias

from loaders.progress import Position, Seen
from loaders.samplers.named import as_plain
from loaders.spec import LoaderSpec
from loaders.transforms.base import AS_WRITTEN, MAX_SIDE, Adjustment
from manifests.errors import CallError
from manifests.json_members import MAX_INTEGER, Member, MemberError, shorten

VERSION = 1

#: The choices of a loader that decide about its batches, by name.
Choices: TypeAlias = Mapping[str, Any]
#: The revision of each dataset.
Revisions: TypeAlias = tuple[int, ...]


def sampling_choices(spec: LoaderSpec) -> dict[str, Any]:
    """Return the choices that all ranks must share: they decide which samples an epoch has."""
    options = spec.options
    return {
        "dataset": spec.split.fingerprint,
        "batch_size": options.batch_size,
        "shuffle": options.shuffle,
        "sampler": spec.order.global_text,
        "sample_order": spec.order.version,
        "seed": options.seed,
        "last_batch": options.last_batch,
    }


def checkpoint_choices(spec: LoaderSpec) -> dict[str, Any]:
    """Return the choices that another loader must share to resume from a checkpoint of this one."""
    options = spec.options
    # It has no effect on one image of each sample.
    shared: dict[str, Any] = {}
    if any(spec.fields.images.values()):
        shared["shared"] = options.shared
    if spec.fields.captions is not None:
        shared |= {"caption": options.caption, "caption_weights": options.caption_weights}
    # The decoder draws crops, so DALI's checkpoint has its state. Another choice may be the reason
    # why there is none, so an error names that one.
    decoder = {"decoder": options.decoder} if spec.may_choose_decoder else {}
    return {
        **sampling_choices(spec),
        **shared,
        "transforms": spec.written.text,
        "world_size": options.ranks.world_size,
        "rank": options.ranks.rank,
        "dtype": options.dtype,
        "layout": options.layout,
        "fields": list(options.fields),
        "device": options.device.kind,
        "pipelines": options.pipelines,
        "on_error": options.on_error,
        **decoder,
    }


def origin_of(spec: LoaderSpec) -> dict[str, Any]:
    """Return where the samples of a loader come from, and what draws them, as plain values."""
    split = spec.split
    return {
        "folders": [part.folder for part in split.parts],
        "split": split.name,
        "samples": split.samples,
        "batches": spec.order.batches,
        "sampler": as_plain(getattr(spec.order, "sampler", None)),
    }


@dataclass(frozen=True, slots=True)
class State:
    """What `Loader.state_dict` returns.

    Attributes:
        built: the choices that another loader must share to resume from this checkpoint, by name.
        position: position after the last batch that the user received.
        checkpoint: DALI's checkpoint. Empty before the first batch.
        errors: why images could not be decoded, by their row in the split.
        adjustment: what `Loader.set` has changed.
        revisions: revision of each dataset that the loader reads.
        seen: the batches that the user has received.
        origin: what `origin_of` returns.

    """

    built: dict[str, Any]
    position: Position
    checkpoint: bytes
    errors: Mapping[int, str] = field(default_factory=dict)
    adjustment: Adjustment = AS_WRITTEN
    revisions: Revisions = ()
    seen: Seen = field(default_factory=Seen)
    origin: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return strings, numbers, lists and dictionaries, which JSON can store too."""
        return {
            "version": VERSION,
            "revision": _plain_revisions(self.revisions),
            "built": self.built,
            "position": asdict(self.position),
            "checkpoint": b64encode(self.checkpoint).decode(),
            "checksum": zlib.crc32(self.checkpoint),
            "errors": [[row, reason] for row, reason in sorted(self.errors.items())],
            "set": {
                "size": list(self.adjustment.size or ()),
                "magnitude": self.adjustment.magnitude,
            },
            "seen": {
                "runs": [list(run) for run in self.seen.runs],
                "samples": self.seen.samples,
            },
            "origin": dict(self.origin),
        }


def read_state(
    state: Mapping[str, Any],
    built: Choices,
    *,
    batches: int,
    samples: int = MAX_INTEGER,
    revisions: Revisions = (),
) -> State:
    """Parse the result of `State.to_dict` for a loader that resumes from it.

    A state of a sampler's order is also valid at another rank, world size or batch size per rank,
    if the global batch is the same: the epoch continues with the next global batch. DALI's
    checkpoint belongs to one rank, so it is replaced by a new start at that batch. With
    ``on_error="skip"``, this holds between epochs only.

    Args:
        state: what `Loader.state_dict` returned.
        built: choices of the loader that loads the state.
        batches: number of batches per epoch of that loader.
        samples: number of samples in its split.
        revisions: revision of each dataset that it reads.

    Raises:
        CallError: `state` is not a loader's state, has another version, or belongs to a different
            loader.

    """
    try:
        whole = Member(state)
        version = whole["version"].integer(0, _MAX_COUNT)
        if version != VERSION:
            raise CallError(
                f"this state has version {version}, but this release reads version {VERSION}",
                hint="load it with the release that saved it",
            )
        saved = {name: _plain(member) for name, member in whole["built"].members().items()}
        position = _position(whole["position"], batches)
        try:
            checkpoint = b64decode(whole["checkpoint"].text(), validate=True)
        except ValueError:
            whole["checkpoint"].fail("base64")
        if bool(checkpoint) != bool(position.read):
            whole["checkpoint"].fail("empty before the first batch, and only then")
        if whole["checksum"].value != zlib.crc32(checkpoint):
            # DALI accepts some damaged checkpoints, and continues with other batches.
            whole["checkpoint"].fail("the bytes that were saved")
        errors = dict(whole["errors"].read(tuple[tuple[int, str], ...]))
        adjustment = _adjustment(whole["set"])
        saved_revisions = read_revisions(whole["revision"])
        seen = whole["seen"].record(Seen)
    except MemberError as error:
        raise CallError(
            f"this is not the state of a loader ({error})", hint=_LOAD_ANOTHER
        ) from None
    # Whether the state continues at another rank, world size or batch size.
    moves = _same_global_batches(saved, built)
    if not moves:
        _require_same_choices(saved, built, saved_revisions, revisions)
    # After the comparison of the datasets: a state of a larger one may have larger rows.
    if max(errors, default=0) >= samples:
        raise CallError(
            f"this is not the state of a loader (errors contains row {max(errors)}, but the split"
            f" has {samples} samples)",
            hint=_LOAD_ANOTHER,
        )
    if 0 < position.batch < batches:
        _require_same_epoch(saved, built, errors, moves=moves)
    if moves:
        saved = dict(built)
        saved_revisions = revisions
        position = _moved(position, batches)
        checkpoint = b""
    return State(saved, position, checkpoint, errors, adjustment, saved_revisions, seen)


def _require_same_choices(
    saved: Choices,
    built: Choices,
    saved_revisions: Revisions,
    revisions: Revisions,
) -> None:
    """Check that two loaders were built with the same choices.

    Raises:
        CallError: a choice differs; the message names it.

    """
    differing = _differing(saved, built)
    if set(differing) <= set(_PART) and differing != ["batch_size"] and differing:
        _refuse_ranks(saved, built)
    # Ranks and batch sizes may differ if nothing else does, so another choice is the reason.
    differing.sort(key=_PART.__contains__)
    for name in differing:
        stored = saved.get(name, _EARLIER.get(name))
        value = built[name]
        if name == "sample_order":
            raise CallError(
                "this state was saved by a release whose samplers draw other samples (sample order"
                f" {stored}; this release draws order {value})",
                hint=(
                    "resume it with the release that saved it, or start a new epoch without"
                    " load_state_dict()"
                ),
            )
        if name == "dataset" and saved_revisions != revisions:
            saved_at = _plain_revisions(saved_revisions)
            raise CallError(
                f"the state belongs to revision {saved_at} of the dataset, but this loader reads"
                f" revision {_plain_revisions(revisions)}",
                hint=f"build the loader with revision={saved_at}",
            )
        hint = "build the loader with the same arguments"
        if name == "decoder":
            hint = f"build the loader with decoder={shorten(stored)}"
        raise CallError(
            f"the state was saved by a loader with {name}={shorten(stored, 1000)}, but this loader"
            f" has {name}={shorten(value, 1000)}",
            hint=hint,
        )


def _refuse_ranks(saved: Choices, built: Choices) -> None:
    """Refuse a state that differs only in what part of a global batch a rank reads.

    Raises:
        CallError: always; the hint says how to resume on other ranks.

    """
    texts = []
    own = built["world_size"]
    for choices in (saved, built):
        ranks = f"rank {shorten(choices.get('rank'))} of {shorten(choices.get('world_size'))}"
        texts.append(f"{ranks} with batch_size={shorten(choices.get('batch_size'))}")
    size = _global_batch(saved)
    if built.get("sampler") is None:
        # Without a sampler, DALI's reader gives each rank a part of the split.
        hint = "resume on the same ranks; with shuffle=True or a sampler, any number of ranks can"
    elif size is None or size % own:
        hint = f"resume on a number of ranks that divides the global batch of {size} samples"
    else:
        hint = f"build the loader with batch_size={size // own}, for the same global batch"
    raise CallError(f"the state was saved on {texts[0]}, but this loader is {texts[1]}", hint=hint)


def _require_same_epoch(
    saved: Choices, built: Choices, errors: Mapping[int, str], *, moves: bool
) -> None:
    """Check that the rest of the epoch contains what the loader of the state has not read.

    Raises:
        CallError: the loaders treat bad images in different ways, or as ``on_error="skip"`` does,
            on other ranks.

    """
    own = built.get("on_error")
    stored = saved.get("on_error")
    if moves and stored == "skip":
        # A bad image moves the later samples of its rank up, and a state does not have the errors
        # of other ranks.
        parts = [
            ", ".join(f"{name}={shorten(choices.get(name))}" for name in _PART)
            for choices in (saved, built)
        ]
        raise CallError(
            'the state is from the middle of an epoch with on_error="skip", where each rank leaves'
            " out its own bad images, so it does not tell which samples other ranks have read; it"
            f" was saved with {parts[0]}, but this loader has {parts[1]}",
            hint=(
                "load on each rank its own state, with the same world_size and batch_size, or a"
                ' state from the end of an epoch; runs with on_error="replace" resume anywhere'
            ),
        )
    # Without errors the order is the same, for example if on_error="raise" has stopped a run.
    if errors and stored != own:
        raise CallError(
            "the state is from the middle of an epoch with bad images and"
            f" on_error={shorten(stored)}, but this loader has on_error={own!r}, with which the"
            " epoch contains other samples",
            hint=(
                f"build the loader with on_error={shorten(stored)}, or load a state from the end of"
                " an epoch"
            ),
        )


def read_revisions(member: Member) -> Revisions:
    """Return the revision of each dataset, as `State.to_dict` writes them."""
    members = member.items() if isinstance(member.value, (list, tuple)) else [member]
    return tuple(each.integer(0, _MAX_COUNT) for each in members)


def _plain_revisions(revisions: Revisions) -> int | list[int]:
    """Return revisions as states have them: of one dataset a number."""
    if len(revisions) == 1:
        return revisions[0]
    return list(revisions)


#: Choices that say which part of a global batch a rank reads.
_PART = ("rank", "world_size", "batch_size")


def _same_global_batches(saved: Choices, built: Choices) -> bool:
    """Return whether two loaders only read different parts of equal global batches."""
    differing = _differing(saved, built)
    if not differing or built.get("sampler") is None or not set(differing) <= set(_PART):
        return False
    return _global_batch(saved) == _global_batch(built)


def _differing(saved: Choices, built: Choices) -> list[str]:
    """Return the choices in which two loaders differ, except `on_error`, which may differ."""
    return [
        name
        for name, value in built.items()
        if saved.get(name, _EARLIER.get(name)) != value and name != "on_error"
    ]


#: Choices that states did not have at first, and the value that all loaders had then.
_EARLIER = {"pipelines": 1, "decoder": "gpu"}


def _global_batch(choices: Choices) -> int | None:
    size = choices.get("batch_size")
    world_size = choices.get("world_size")
    if isinstance(size, int) and isinstance(world_size, int):
        return size * world_size
    return None


def _moved(position: Position, batches: int) -> Position:
    """Return the position of a pipeline that starts with the batch that comes next."""
    epoch = position.epoch
    batch = position.batch
    if batch == batches:
        epoch += 1
        batch = 0
    return Position(epoch, batch, started=epoch, skipped=batch)


def _position(member: Member, batches: int) -> Position:
    at = member.record(Position)
    within = at.skipped <= batches and at.batch <= min(batches, at.read + at.skipped)
    if not (within and at.started <= at.epoch <= _MAX_EPOCH and at.read <= _MAX_COUNT):
        member.fail(f"a position in epochs of {batches} batches")
    return at


def _adjustment(member: Member) -> Adjustment:
    sides = member["size"].read(tuple[Annotated[int, 1, MAX_SIDE], ...])
    magnitude = member["magnitude"].value
    if len(sides) not in (0, 2):
        member["size"].fail("a height and a width, or nothing")
    if magnitude is not None and (
        type(magnitude) not in (int, float) or not 0 <= magnitude <= MAX_SIDE
    ):
        member["magnitude"].fail("a number of at least 0, or nothing")
    return Adjustment(sides or None, magnitude)


def _plain(member: Member) -> Any:
    """Return a choice of a loader: `None`, text, a number, or a list of text.

    Other values could be of any size.
    """
    if isinstance(member.value, (list, tuple)):
        return list(member.texts())
    if isinstance(member.value, str):
        return member.text()
    if member.value is None or isinstance(member.value, (bool, float)):
        return member.value
    return member.integer(-MAX_INTEGER)


#: Larger numbers of epochs, as `Loader.set_epoch` takes them, and of batches are a mistake.
_MAX_EPOCH = 2**31 - 1
_MAX_COUNT = 1 << 53
_LOAD_ANOTHER = "pass the unchanged result of Loader.state_dict()"

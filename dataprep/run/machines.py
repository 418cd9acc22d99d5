"""Check that other machines can take part in a run: they see its folders and write the same bytes."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dataprep import storage
from dataprep.canary import Canary, canary, check_canary
from dataprep.containers import SourceImages
from dataprep.engines import Engine
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.shards.source_image import load_image
from dataprep.sources import Source
from manifests.errors import SourceVanishedError, StorageError

#: Prefix of the temporary file by which a machine recognizes the output folder.
_PROBE = "machine-check-"


class Expected(NamedTuple):
    """What a machine must find.

    Attributes:
        out: the output folder.
        probe: final name of a temporary file in it, which this run has written.
        images: some images of the source.
        canary: the canary of the machine that made the plan.

    """

    out: str
    probe: str
    images: SourceImages
    canary: Canary


def check_machines(engine: Engine, source: Source, out: str) -> None:
    """Check all machines of an engine.

    Call it while the folder for temporary files exists, which keeps the probe.

    Raises:
        StoppedError: a machine does not see the output folder or the source, or would write other
            bytes.

    """
    if engine.is_local:
        return
    probe = _PROBE + secrets.token_hex(8)
    storage.write_partial(os.path.join(out, probe), b"")
    # The first and the last image: a source may be spread over several file systems.
    images = source.images(np.arange(len(source))[:: max(1, len(source) - 1)])
    engine.check(check_machine, Expected(out, probe, images, canary()))


def check_machine(expected: Expected) -> None:
    """Check this machine.

    Raises:
        SourceVanishedError: it does not see the source.
        StorageError: it does not see the output folder, or cannot write to it.
        StoppedError: it would write other bytes.

    """
    check_canary(expected.canary)
    if not storage.has_locks(expected.out):
        storage.make_folder(expected.out)
    elif not storage.partials_named(expected.out, expected.probe):
        raise StorageError(
            (
                "it does not see the output folder"
                if not os.path.isdir(expected.out)
                else "it has another folder here"
            ),
            file=expected.out,
            hint=(
                "write to a folder that all machines share, and mount it at the same path on each"
                " of them"
            ),
        )
    own = os.path.join(expected.out, f"{_PROBE}write")
    storage.write_partial(own, b"")
    storage.discard([own])
    try:
        root, *columns = expected.images
        for path, size, location in zip(*columns, strict=True):
            with suppress(Rejected):
                load_image(root, path, size, Options(), location)
    except SourceVanishedError as error:
        raise SourceVanishedError(
            f"it does not see the source as it was scanned: {error.message}",
            file=error.file,
            hint="mount the source at the same path on each machine",
        ) from None

"""Candidates among small images, which have few details; their pixels decide, see `pixels`.

Small images are often other crops of one photograph, which changes most bits of fine detail. So
candidates need only have similar low frequencies, which many different images have too. Where so
many images look alike that there are too many candidates, only the nearest ones of each image are
kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataprep.duplicates import search
from dataprep.duplicates.near import count_bits, search_hashes
from dataprep.duplicates.nearest import MAX_ROWS, search_nearest
from dataprep.duplicates.search import Pairs, TooManyPairsError, low_frequencies
from dataprep.options import DEFAULT_DISTANCE
from dataprep.progress import Progress
from manifests.errors import CallError

#: Images whose shorter side has fewer pixels are small.
SMALL = 64

#: Of 64 low frequencies, so many may have another sign at the default distance, and at the largest
#: one.
_COARSE_DISTANCE, _MAX_COARSE_DISTANCE = 11, 15

#: Candidates for each small image on average, at most; and how many there may be in any case.
_CANDIDATES, _FEW_CANDIDATES = 50, 1_000_000


#: If more than this share of at least so many small images are near copies, most of them may only
#: look alike.
_MANY_COPIES, _MANY_IMAGES = 0.2, 100


class Candidates(NamedTuple):
    """Pairs of small images whose pixels are to be compared.

    Attributes:
        pairs: positions of the images, with the number of all 256 bits that differ.
        symmetry: what turns the second image into the first: positions in `SYMMETRIES`, uint8 [N].
        note: what was not compared, for the user; empty if all was.

    """

    pairs: Pairs
    symmetry: NDArray[np.uint8]
    note: str


def search_small(
    hashes: NDArray[np.uint64],
    distance: int,
    side: NDArray[np.int8] | None,
    *,
    workers: int | None,
    progress: Progress | None,
) -> Candidates:
    """Find pairs of small images with similar low frequencies.

    Args:
        hashes: uint64 [N, 4].
        distance: number of different bits of 256, which is converted to one of 64.
        side: [N]. If given, only images with different values are compared.
        workers: number of processes; `None` means one per CPU.
        progress: receives the progress, in images.

    Raises:
        CallError: there are too many images.

    """
    if len(hashes) > MAX_ROWS:
        raise CallError(
            f"{len(hashes):,} images have a side of less than {SMALL} pixels, but at most"
            f" {MAX_ROWS:,} can be compared",
            hint=(
                "give fewer datasets, or set --distance -1, which finds only images with the same"
                " bytes"
            ),
        )
    coarse = min(_MAX_COARSE_DISTANCE, distance * _COARSE_DISTANCE // DEFAULT_DISTANCE)
    most = min(max(_CANDIDATES * len(hashes), _FEW_CANDIDATES), search.MAX_PAIRS)
    try:
        pairs, symmetry = search_hashes(
            hashes,
            coarse,
            side,
            bits=low_frequencies,
            most=most,
            workers=workers,
            progress=progress,
        )
    except TooManyPairsError:
        keep = max(1, most // len(hashes))
        pairs, symmetry = search_nearest(
            hashes, coarse, side, keep=keep, workers=workers, progress=progress
        )
        note = (
            f"so many of the {len(hashes):,} images with a side of less than {SMALL} pixels look"
            f" alike that only the {keep} nearest ones of each were compared with it: some near"
            " copies may be missing. A smaller --distance has fewer candidates"
        )
        return Candidates(pairs, symmetry, note)
    bits = count_bits(hashes, pairs.first, pairs.second, symmetry)
    return Candidates(Pairs(pairs.first, pairs.second, bits), symmetry, "")


def doubt(near: Pairs, is_small: NDArray[np.bool_]) -> str:
    """Return a note for the user if so many small images are near copies that many may only look alike; else "".

    Args:
        near: near copies.
        is_small: which images are small, bool [N].

    """
    count = int(is_small.sum())
    copies = int(is_small[np.unique(np.concatenate([near.first, near.second]))].sum())
    if count < _MANY_IMAGES or copies <= _MANY_COPIES * count:
        return ""
    return (
        f"{copies:,} of the {count:,} images with a side of less than {SMALL} pixels count as near"
        " copies. Different digits, drawings and icons can look alike: compare some of the pairs."
        " --distance 10 is stricter"
    )

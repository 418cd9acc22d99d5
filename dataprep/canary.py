"""Prove that two machines write the same bytes: a canary that each computes with its own libraries.

Built-in pictures are decoded, resized and encoded, and a built-in sample table is written, by the
code that also writes shards. Pillow, cykooz-resizer, simplejpeg, pyarrow and the instructions of
the CPU determine the bytes.
"""

from __future__ import annotations

import hashlib
import io
import logging
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, get_args

from dataprep.options import Downscale, Options, Raw, Transcode, transcoder_versions
from manifests.errors import StoppedError
from manifests.process.program import release
from manifests.process.text import printable
from manifests.records import record

if TYPE_CHECKING:
    from PIL import Image

_log = logging.getLogger(__name__)


@record
class Canary:
    """What a machine writes for the built-in pictures and the built-in table.

    Attributes:
        digest: SHA-256 of the bytes and of the versions that must be equal, 32 hex digits.
        versions: version of each library that takes part, of this program, and the level of the
            CPU.

    """

    digest: str
    versions: Mapping[str, str]


#: These must be equal even if the built-in pictures come out the same: other pictures may not.
_MUST_BE_EQUAL = ("dataprep", "Pillow", "cykooz-resizer", "simplejpeg", "pyarrow")


@cache
def canary(*, transcodes: bool = False) -> Canary:
    """Compute the canary of this machine.

    It takes less than 0.1 s after the libraries are imported.

    Args:
        transcodes: whether images that DALI does not decode are transcoded. The libraries that
            decode them then take part.

    """
    versions = _versions()
    must_be_equal = [versions[name] for name in _MUST_BE_EQUAL]
    pictures = [*_prepared_pictures()]
    if transcodes:
        decoders = transcoder_versions()
        versions |= decoders
        must_be_equal += decoders.values()
        pictures += _transcoded_pictures()
    digest = hashlib.sha256(repr(must_be_equal).encode())
    for data in (*pictures, _table()):
        digest.update(len(data).to_bytes(8, "little") + data)
    return Canary(digest.hexdigest()[:32], versions)


def check_canary(expected: Canary) -> None:
    """Check that this machine writes the same bytes as the one that made a plan.

    Raises:
        StoppedError: it does not; nothing must be written here.

    """
    own = canary(transcodes=transcoder_versions().keys() <= expected.versions.keys())
    if own.digest == expected.digest:
        _log.info("this machine writes the same bytes as the one that made the plan")
        return
    names = []
    for name in (*own.versions, *expected.versions):
        if own.versions.get(name) != expected.versions.get(name):
            names.append(name)
    # Say which libraries to install, if their versions tell.
    if names:
        there, here = (_join(machine.versions, names) for machine in (expected, own))
        reason = f"the plan was made with {there}, but this machine has {here}"
    else:
        reason = (
            f"the versions are equal ({_join(own.versions, [*own.versions])}), so a library was"
            " built differently"
        )
    raise StoppedError(
        f"this machine ({platform.node()}) would write other bytes than the one that made the plan:"
        f" {reason}",
        hint=(
            "install the versions of the plan here and run the same command again, or make the plan"
            " again with --overwrite"
        ),
    )


def _join(versions: Mapping[str, str], names: list[str]) -> str:
    return ", ".join(
        f"{name} {printable(versions.get(name, 'unknown'))}" for name in dict.fromkeys(names)
    )


# --- what determines the bytes --------------------------------------------------------------------


def _versions() -> dict[str, str]:
    # Plans need it, most runs do not.
    from importlib.metadata import version

    import numpy as np
    import PIL
    import pyarrow as pa
    import simplejpeg
    from PIL import features

    return {
        "dataprep": release(),
        "Pillow": PIL.__version__,
        "cykooz-resizer": version("cykooz-resizer"),
        "simplejpeg": simplejpeg.__version__,
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "libjpeg-turbo": features.version("libjpeg_turbo") or "none",
        "CPU": _cpu_level(),
    }


#: Flags in ``/proc/cpuinfo`` that each level of x86-64 adds, as its ABI defines them; one flag
#: stands for several.
_LEVELS = {
    "2": {"ssse3", "sse4_2", "popcnt"},
    "3": {"avx2", "bmi2", "fma"},
    "4": {"avx512f", "avx512bw", "avx512vl"},
}


def _cpu_level() -> str:
    """Return the architecture, with the level of its instructions: ``x86-64-v3``."""
    if platform.machine() != "x86_64":
        return platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    except OSError:
        return "x86-64"
    # A CPU has a level if it has the flags of all levels up to it.
    level = "1"
    for number, needed in _LEVELS.items():
        if not needed <= flags:
            break
        level = number
    return f"x86-64-v{level}"


# --- the built-in pictures and the table ----------------------------------------------------------


def _prepared_pictures() -> Iterator[bytes]:
    """Yield the stored bytes of a JPEG, a PNG and a WebP: resized, and as raw pixels."""
    from dataprep.images.downscale import prepare

    for data in _pictures():
        for options in (Options(downscale=Downscale(shorter=60)), Options(raw=Raw(50, "pad"))):
            yield prepare(data, options).data


def _transcoded_pictures() -> Iterator[bytes]:
    """Yield the stored bytes of a GIF in each format."""
    from dataprep.images.downscale import prepare

    file = io.BytesIO()
    _picture().save(file, "GIF")
    for target in get_args(Transcode):
        yield prepare(file.getvalue(), Options(transcode=target)).data


def _pictures() -> Iterator[bytes]:
    import numpy as np
    import simplejpeg

    picture = _picture()
    yield bytes(simplejpeg.encode_jpeg(np.asarray(picture), 92, "RGB", "420"))
    for name in ("PNG", "WEBP"):
        file = io.BytesIO()
        picture.crop((0, 0, 150, 100)).save(file, name)
        yield file.getvalue()


def _picture() -> Image.Image:
    import numpy as np
    from PIL import Image

    y, x = np.mgrid[0:300, 0:400]
    # Integers only: smooth waves, edges and texture, the same on every machine.
    pixels = np.stack([x * y // 97 + x, (x // 5 + y // 3) * 7, (x ^ y) * 3], axis=-1).astype(
        np.uint8
    )
    return Image.fromarray(pixels)


def _table() -> bytes:
    from manifests.parquet import parquet_bytes
    from manifests.schema import Conversion, File
    from manifests.tables import build_table

    # With nulls, fractions and text that is not ASCII, as sample tables can have.
    rows = range(500)
    columns = {
        "key": [f"{row:08d}" for row in rows],
        "label": [row % 7 for row in rows],
        "offset": [row * 1000 for row in rows],
        "size": [900 + row for row in rows],
        "width": [640] * len(rows),
        "height": [480 - row % 3 for row in rows],
        "source": [f"class {row % 7}/{row}.jpg" for row in rows],
        "crc32c": [row * 8_388_593 for row in rows],
        "score": [row / 7 for row in rows],
        "name": [f"é{row % 11}" if row % 5 else None for row in rows],
    }
    shard, index = File("train-00000.tar", 1, None), File("train-00000.idx", 1, None)
    conversion = Conversion("canary", len(rows), len(rows), 0, ("jpeg",), shard, index, ())
    return parquet_bytes(build_table(columns, conversion))

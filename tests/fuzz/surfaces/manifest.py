"""``manifest.json`` of a dataset, most of the time with the right checksum."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from awscrt.checksums import crc32c

from fuzz import mutate
from fuzz.checks import Case, command, load, require, write_case
from fuzz.oracles import count_stored
from fuzz.seeds import CLASSES, KINDS, dataset

NAME = "manifest.json"


def signed(body: dict[str, object]) -> bytes:
    """Serialize a manifest with its checksum."""
    body = {key: value for key, value in body.items() if key != "checksum"}
    checksum = f"crc32c:{crc32c(_dump(body)):08x}"
    return _dump({**body, "checksum": checksum})


def _dump(body: object) -> bytes:
    return mutate.dump_json(body, indent=1) + b"\n"


def make(rng: Random) -> Case:
    files = dict(dataset(rng.choice(KINDS)))
    body = json.loads(files[NAME])
    if signed(body) != files[NAME]:
        raise AssertionError("manifests have another layout than this surface writes")
    kind = rng.random()
    if kind < 0.75:
        changed = mutate.mutate_json(rng, body)
        files[NAME] = signed(changed) if isinstance(changed, dict) else _dump(changed)
    elif kind < 0.8:
        names = [f"c{number}" for number in range(rng.choice((10**5, 10**6)))]
        files[NAME] = signed({**body, "classes": rng.choice((names, [""] * 10**5, [{}] * 10**6))})
    else:
        files[NAME] = mutate.mutate_bytes(rng, files[NAME])
    return files


def check(case: Case, folder: Path) -> None:
    data = write_case(case, folder / "data")
    verified = command("verify", data, "--decode", "--workers", 1, writable=[])
    for options in ((), ("--json",)):
        command("info", data, *options, writable=[])
    command("report", data, "--out", folder / "report.html", "--workers", 1, writable=[folder])
    samples = load(data)
    if verified.status == 0:
        body = json.loads(case[NAME])
        stated = sum(split["samples"] for split in body["splits"].values())
        stored = count_stored(data, body)
        require(
            stated == stored,
            f"verify says sound, but {stated} samples are stated and DALI reads {stored}",
        )
    if isinstance(samples, list):
        names = json.loads(case[NAME])["classes"] or CLASSES
        require(
            all(0 <= label < len(names) for label, _, _ in samples),
            f"labels {samples} out of range",
        )

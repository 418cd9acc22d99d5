"""DALI index files, with a manifest that has the checksum of the intact or of the mutated index."""

from __future__ import annotations

from pathlib import Path
from random import Random

from fuzz import mutate
from fuzz.checks import Case, command, load, require, write_case
from fuzz.oracles import intact_samples, with_files
from fuzz.seeds import KINDS, dataset


def make(rng: Random) -> Case:
    kind = rng.choice(KINDS)
    intact = dataset(kind)
    intact_samples(kind)  # cached before the check forks
    name = rng.choice([name for name in intact if name.endswith(".idx")])
    data = intact[name]
    choice = rng.random()
    if choice < 0.4:
        data = _changed_number(rng, data)
    elif choice < 0.6:
        data = mutate.mutate_text(rng, data.decode()).encode("utf-8", "surrogatepass")
    elif choice < 0.65:
        data = next(intact[other] for other in intact if other.endswith(".idx") and other != name)
    else:
        data = mutate.mutate_bytes(rng, data)
    changed = {name: data}
    updated = with_files(intact, changed) if rng.random() < 0.5 else {**intact, **changed}
    return {**updated, "kind": kind.encode()}


def _changed_number(rng: Random, data: bytes) -> bytes:
    tokens = data.split(b" ")
    places = [at for at, token in enumerate(tokens) if token.isdigit()]
    at = rng.choice(places)
    number = int(tokens[at])
    odd = [number + change for change in (512, -512, 1)]
    odd += [0, 1, number ^ 2, 2**31, 2**63 - 512, 2**63, 2**64 - 512, -512]
    tokens[at] = b"%d" % rng.choice(odd)
    return b" ".join(tokens)


def check(case: Case, folder: Path) -> None:
    kind = case["kind"].decode()
    data = write_case(
        {name: data for name, data in case.items() if name != "kind"}, folder / "data"
    )
    verified = command("verify", data, "--workers", 1, writable=[])
    intact = dataset(kind)
    same = all(case[name] == intact[name] for name in intact if name.endswith(".idx"))
    require(
        verified.status == 1 or same, "verify says sound, but the index differs from the intact one"
    )
    samples = load(data)
    if isinstance(samples, list) and case["manifest.json"] == intact["manifest.json"]:
        require(samples == intact_samples(kind), f"the loader returns other samples: {samples}")
    command("info", data, writable=[])

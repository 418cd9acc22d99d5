"""TFRecord shards of other tools: mutated bytes, records and `tf.train.Example` messages."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

from helpers.oracles import Example, make_example, masked_crc, unframe

from fuzz import mutate
from fuzz.checks import Case, check_index
from fuzz.seeds import images

_SHARD = "train-00000.tfrecord"
_IMAGE, _LABEL = "image/encoded", "image/class/label"


def make(rng: Random) -> Case:
    payloads = []
    for number, image in enumerate([*images().values()][: rng.randint(1, 4)]):
        features = {_IMAGE: image, _LABEL: number % 3, "image/width": 16}
        payloads.append(make_example({**features, "image/filename": b"%d.jpg" % number}))
    for at in rng.sample(range(len(payloads)), min(rng.choice((0, 1, 1, 2)), len(payloads))):
        payloads[at] = _odd_example(rng, payloads[at])
        if rng.random() < 0.2:  # `test_example_proto` has messages of any layout
            payloads[at] = mutate.mutate_bytes(rng, payloads[at], 60)
    shard = b"".join(_record(rng, payload) for payload in payloads)
    choice = rng.random()
    if choice < 0.15:
        shard = mutate.mutate_bytes(rng, shard)
    elif choice < 0.25:
        shard += rng.choice((b"x", bytes(1), bytes(16), bytes(4096), shard[:40], b"\xff" * 16))
    options = ["--validate", rng.choice(("none", "header", "decode", "decode"))]
    if rng.random() < 0.15:
        odd = (["--label", _LABEL], ["--image", _IMAGE], ["--label", "x" * 200])
        options += rng.choice((*odd, ["--label-offset", "-1"]))
    return {_SHARD: shard, "options": json.dumps(options).encode()}


def _record(rng: Random, payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    crcs = [masked_crc(length), masked_crc(payload)]
    if rng.random() < 0.02:
        crcs[rng.randrange(2)] = bytes(4)
    return length + crcs[0] + payload + crcs[1]


_NUMBERS = ([], [-1], [2**63 - 1], [-(2**63)], [1, 2], [10**7], [5])
_FLOATS = ([], [1.0], [float("nan")], [0.5] * 3000)


def _odd_example(rng: Random, payload: bytes) -> bytes:
    """Change a feature, add one, or shuffle the features."""
    example = Example.FromString(payload)
    features = example.features.feature
    entry, kind = rng.choice(features), rng.randrange(6)
    if kind == 0:
        features.remove(entry)
    elif kind == 1:
        name = rng.choice((entry.key, "x" * rng.choice((1, 127, 128, 300)), ""))
        features.add(key=name).value.CopyFrom(entry.value)
    elif kind == 2:
        entry.key = rng.choice((_IMAGE, _LABEL, "caf\u00e9", "a/b"))
    elif kind == 3:
        entry.value.int64_list.value[:] = rng.choice(_NUMBERS)
    elif kind == 4:
        entry.value.float_list.value[:] = rng.choice(_FLOATS)
    else:
        odd = ([], [b""], [b"1"], [b"a", b"b"], [next(iter(images().values()))])
        entry.value.bytes_list.value[:] = rng.choice(odd)
    shuffled = Example()
    shuffled.features.feature.extend(rng.sample(list(features), len(features)))
    return bytes(shuffled.SerializeToString())


# --- oracles ------------------------------------------------------------------------------------


def read_example(payload: bytes) -> dict[str, Any]:
    """Return the lists by feature name; the last of several counts, as in protobuf."""
    features = {}
    for entry in Example.FromString(payload).features.feature:
        kinds = ("bytes_list", "int64_list", "float_list")
        kind = next((kind for kind in kinds if entry.value.HasField(kind)), None)
        features[entry.key] = list(getattr(entry.value, kind).value) if kind else []
    return features


def check(case: Case, folder: Path) -> None:
    def stored(components: Any) -> list[tuple[bytes, Any]]:
        (image,), label = components["image"], components["label"]
        records = [read_example(payload) for payload in unframe(case[_SHARD])]
        offset = components["label_offset"]
        return [(features[image][0], features[label][0] + offset) for features in records]

    check_index(_SHARD, case, folder, stored)

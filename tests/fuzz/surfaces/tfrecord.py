"""TFRecord shards of other tools: mutated bytes, records and `tf.train.Example` messages."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

from helpers.oracles import Example, masked_crc, unframe

from fuzz import mutate
from fuzz.checks import Case, check_index
from fuzz.seeds import images

_SHARD = "train-00000.tfrecord"
_IMAGE, _LABEL = "image/encoded", "image/class/label"


def make(rng: Random) -> Case:
    payloads = [_payload(number, data) for number, data in enumerate(images().values())][
        : rng.randint(1, 4)
    ]
    for at in rng.sample(range(len(payloads)), min(rng.choice((0, 1, 1, 2)), len(payloads))):
        payloads[at] = rng.choice((_odd_example, _odd_example, _odd_bytes))(rng, payloads[at], at)
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


def _payload(number: int, image: bytes) -> bytes:
    example = Example()
    example.features.feature.add(key=_IMAGE).value.bytes_list.value.append(image)
    example.features.feature.add(key=_LABEL).value.int64_list.value.append(number % 3)
    example.features.feature.add(key="image/width").value.int64_list.value.append(16)
    example.features.feature.add(key="image/filename").value.bytes_list.value.append(
        b"%d.jpg" % number
    )
    return bytes(example.SerializeToString())


def _record(rng: Random, payload: bytes) -> bytes:
    length = struct.pack("<Q", len(payload))
    crcs = [masked_crc(length), masked_crc(payload)]
    if rng.random() < 0.02:
        crcs[rng.randrange(2)] = bytes(4)
    return length + crcs[0] + payload + crcs[1]


def _odd_example(rng: Random, payload: bytes, number: int) -> bytes:
    """Change a feature, add one, or shuffle the features."""
    example = Example.FromString(payload)
    features = example.features.feature
    entry = rng.choice(features)
    kind = rng.randrange(6)
    if kind == 0:
        features.remove(entry)
    elif kind == 1:
        features.add(
            key=rng.choice((entry.key, "x" * rng.choice((1, 127, 128, 300)), ""))
        ).value.CopyFrom(entry.value)
    elif kind == 2:
        entry.key = rng.choice((_IMAGE, _LABEL, "caf\u00e9", "a/b"))
    elif kind == 3:
        entry.value.int64_list.value[:] = rng.choice(
            ([], [-1], [2**63 - 1], [-(2**63)], [1, 2], [10**7], [5])
        )
    elif kind == 4:
        entry.value.float_list.value[:] = rng.choice(([], [1.0], [float("nan")], [0.5] * 3000))
    else:
        entry.value.bytes_list.value[:] = rng.choice(
            ([], [b""], [b"1"], [b"a", b"b"], [next(iter(images().values()))])
        )
    order = list(features)
    rng.shuffle(order)
    shuffled = Example()
    for feature in order:
        shuffled.features.feature.add().CopyFrom(feature)
    return bytes(shuffled.SerializeToString())


def _field(number: int, kind: int, content: bytes) -> bytes:
    length = _varint(len(content)) if kind == 2 else b""
    return _varint(number << 3 | kind) + length + content


def _varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _odd_bytes(rng: Random, payload: bytes, number: int) -> bytes:
    """Encode a message in an unusual but valid way, or break it."""
    image = list(images().values())[number]
    value = _field(1, 2, _field(1, 2, image))
    label = _field(3, 2, _field(1, 0, _varint(number % 3)))  # not packed
    unknown = rng.choice(
        (
            _field(9, 0, _varint(5)), _field(15, 2, b"abc"), _field(99, 5, bytes(4)),
            _field(12, 1, bytes(8)),
        )
    )  # fmt: skip

    def entry(key: bytes, content: bytes) -> bytes:
        parts = [_field(1, 2, key), _field(2, 2, content)]
        parts += [unknown] if rng.random() < 0.3 else []
        return _field(
            1, 2, b"".join(rng.sample(parts, len(parts)) if rng.random() < 0.5 else parts)
        )

    features = [entry(_IMAGE.encode(), value), entry(_LABEL.encode(), label)]
    features += (
        [entry(b"f", _field(2, 2, _field(1, 5, bytes(4)) * 3))] if rng.random() < 0.3 else []
    )
    features += [unknown] if rng.random() < 0.3 else []
    example = _field(1, 2, b"".join(features)) + (unknown if rng.random() < 0.3 else b"")
    if rng.random() < 0.2:  # two messages in a row are merged
        example = _field(1, 2, features[0]) + _field(1, 2, b"".join(features[1:]))
    return mutate.mutate_bytes(rng, example, 60) if rng.random() < 0.4 else example


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

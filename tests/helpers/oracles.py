"""Independent readers and writers of shards, to compare dataprep with: protobuf, tar, DALI and others."""

from __future__ import annotations

import io
import pickle
import runpy
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import crc32c
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from helpers.warm_python import WarmPython

Sample = tuple[bytes, int]

# --- tf.train.Example with protobuf, in a separate descriptor pool, so TensorFlow can be loaded too


def _example_class() -> Any:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package="oracle", syntax="proto3"
    )

    def message(name: str, *fields: tuple[str, int, int, int, str]) -> None:
        descriptor = file.message_type.add(name=name)
        for field_name, number, kind, cardinality, type_name in fields:
            given = {"name": field_name, "number": number, "type": kind, "label": cardinality}
            descriptor.field.add(**given, type_name=type_name or None)

    optional, repeated = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message("BytesList", ("value", 1, field.TYPE_BYTES, repeated, ""))
    message("FloatList", ("value", 1, field.TYPE_FLOAT, repeated, ""))
    message("Int64List", ("value", 1, field.TYPE_INT64, repeated, ""))
    message(
        "Feature",
        ("bytes_list", 1, field.TYPE_MESSAGE, optional, ".oracle.BytesList"),
        ("float_list", 2, field.TYPE_MESSAGE, optional, ".oracle.FloatList"),
        ("int64_list", 3, field.TYPE_MESSAGE, optional, ".oracle.Int64List"),
    )
    one_of = file.message_type[-1]
    one_of.oneof_decl.add(name="kind")
    for each in one_of.field:
        each.oneof_index = 0
    # On the wire, a map is a repeated message. This declaration lets tests choose the order of the
    # features.
    message(
        "Entry",
        ("key", 1, field.TYPE_STRING, optional, ""),
        ("value", 2, field.TYPE_MESSAGE, optional, ".oracle.Feature"),
    )
    message("Features", ("feature", 1, field.TYPE_MESSAGE, repeated, ".oracle.Entry"))
    message("Example", ("features", 1, field.TYPE_MESSAGE, optional, ".oracle.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("oracle.Example"))


Example = _example_class()


def parse_example(payload: bytes) -> dict[str, list[Any] | None]:
    """Return every feature of an Example by name; `None` for a feature without a list."""
    example = Example.FromString(payload)
    features: dict[str, list[Any] | None] = {}
    for entry in example.features.feature:
        assert entry.key not in features, f"{entry.key} twice"
        every = ("bytes_list", "float_list", "int64_list")
        kinds = [kind for kind in every if entry.value.HasField(kind)]
        assert len(kinds) <= 1
        features[entry.key] = list(getattr(entry.value, kinds[0]).value) if kinds else None
    return features


def make_example(features: dict[str, Any]) -> bytes:
    """Serialize an Example with its features in the given order.

    A list is a feature with several values.
    """
    example = Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        entry = example.features.feature.add(key=name)
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}[type(values[0])]
        getattr(entry.value, kind).value.extend(values)
    return example.SerializeToString()


def masked_crc(data: bytes) -> bytes:
    """Return the CRC of a TFRecord file for a length or a payload."""
    crc = crc32c.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write_tfrecord(path: Path, payloads: Iterable[bytes]) -> None:
    """Write a TFRecord file with both CRCs."""
    with path.open("wb") as file:
        for payload in payloads:
            length = struct.pack("<Q", len(payload))
            file.write(length + masked_crc(length) + payload + masked_crc(payload))


def read_tfrecord(path: Path) -> list[bytes]:
    """Return the payloads of all records, after checking both CRCs."""
    return unframe(path.read_bytes())


def unframe(data: bytes) -> list[bytes]:
    """Return the payloads of all records of a TFRecord file, after checking both CRCs."""
    offset, payloads = 0, []
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        assert data[offset + 8 : offset + 12] == masked_crc(data[offset : offset + 8])
        payload = data[offset + 12 : offset + 12 + length]
        assert data[offset + 12 + length : offset + 16 + length] == masked_crc(payload)
        payloads.append(payload)
        offset += length + 16
    return payloads


_READ_WITH_PACKAGE = """
import pickle, sys
from tfrecord.reader import tfrecord_loader
out = []
for record in tfrecord_loader(sys.argv[1], None):
    out.append((bytes(record[sys.argv[2]]), int(record[sys.argv[3]][0])))
print(pickle.dumps(out).hex())
"""


def read_with_tfrecord_package(
    python: WarmPython, path: Path, image: str = "image/encoded", label: str = "image/class/label"
) -> list[Sample]:
    # In a separate process: its protobuf symbols conflict with those of TensorFlow.
    return pickle.loads(
        bytes.fromhex(python.run("-c", _READ_WITH_PACKAGE, path, image, label, check=True).stdout)
    )


# --- WebDataset ---------------------------------------------------------------------------------


def read_with_webdataset(path: Path) -> list[dict[str, Any]]:
    import webdataset

    return list(webdataset.WebDataset([str(path)], shardshuffle=False))


def write_tar(
    path: Path,
    files: Iterable[tuple[str, bytes]],
    kind: int = tarfile.USTAR_FORMAT,
    encoding: str = "utf-8",
) -> None:
    """Write a tar archive."""
    with tarfile.open(path, "w", format=kind, encoding=encoding) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def tar(*arguments: object, **options: Any) -> str:
    run = subprocess.run(
        ["tar", *map(str, arguments)], capture_output=True, text=True, check=True, **options
    )
    assert run.stderr == ""
    return run.stdout


# --- DALI ---------------------------------------------------------------------------------------


def official_index(shard: Path, out: Path) -> bytes:
    """Return the index that NVIDIA's own tool writes: `tfrecord2idx` or `wds2idx`."""
    if shard.suffix == ".tar":
        from wds2idx import IndexCreator

        with IndexCreator(str(shard), str(out), verbose=False) as creator:
            creator.create_index()
    else:
        script = _script_of_dali("tfrecord2idx")
        hidden = {"tensorflow": None, "tensorflow_io": None}
        with (
            mock.patch.object(sys, "argv", [str(script), str(shard), str(out)]),
            mock.patch.dict(sys.modules, hidden),
        ):
            runpy.run_path(str(script))
    return out.read_bytes()


@cache
def _script_of_dali(name: str) -> Path:
    for wheel in metadata.distributions():
        if (wheel.metadata["Name"] or "").startswith("nvidia-dali"):
            return next(Path(str(file.locate())) for file in wheel.files or () if file.name == name)
    raise LookupError("no wheel of DALI is installed")


def read_with_dali(
    shards: Sequence[Path],
    indexes: Sequence[Path],
    image: Sequence[str] = ("image/encoded",),
    label: str = "image/class/label",
) -> list[Sample]:
    """Read all images, still encoded, and their labels with DALI's reader on the CPU."""
    from nvidia.dali import fn, pipeline_def, tfrecord, types

    paths, index_paths = [str(path) for path in shards], [str(path) for path in indexes]
    count = sum(
        len(path.read_bytes().splitlines()) - (path.read_bytes()[:1] == b"v") for path in indexes
    )

    @pipeline_def(batch_size=count, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def pipeline() -> Any:
        if paths[0].endswith(".tar"):
            given = {"paths": paths, "index_paths": index_paths, "ext": [";".join(image), label]}
            given |= {"missing_component_behavior": "error", "case_sensitive_extensions": False}
            return tuple(fn.readers.webdataset(**given, dtypes=[types.UINT8, types.UINT8]))
        features = {
            image[0]: tfrecord.FixedLenFeature((), tfrecord.string, ""),
            label: tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        read = fn.readers.tfrecord(path=paths, index_path=index_paths, features=features)
        return read[image[0]], read[label]

    pipe = pipeline()
    pipe.build()
    assert sum(pipe.epoch_size().values()) == count
    images, labels = pipe.run()
    raw = [bytes(images.at(n)) for n in range(count)]
    read = [labels.at(n) for n in range(count)]
    return [
        (data, int(value[0] if value.dtype.kind == "i" else bytes(value)))
        for data, value in zip(raw, read, strict=True)
    ]

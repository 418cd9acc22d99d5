"""Valid Examples of any layout are read as protobuf reads them, and anything else is refused."""

from __future__ import annotations

import struct

import pytest
from google.protobuf.message import DecodeError
from helpers.oracles import Example, make_example, official_index, read_with_dali, write_tfrecord
from helpers.rows import evaluate, read_rows
from hypothesis import given
from hypothesis import strategies as st

import loaders
from dataprep.formats import example_proto, tfrecord
from dataprep.formats.base import ScanOptions
from dataprep.formats.example_proto import BYTES, FLOATS, INTS, FeatureReader
from dataprep.indexing.index import index_shards
from dataprep.verification.verify import verify_dataset
from manifests.errors import ShardError
from manifests.schema import Components

# --- the wire format ----------------------------------------------------------------------------


def varint(value: int, padding: int = 0) -> bytes:
    """Encode a number, in more bytes than needed if `padding` is not 0."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    padding = min(padding, 10 - len(out))
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def message(number: int, data: bytes, padding: int = 0) -> bytes:
    return varint(number << 3 | 2) + varint(len(data), padding) + data


numbers = st.integers(4, 1 << 20)
unknown = st.one_of(
    st.builds(lambda n, v: varint(n << 3) + varint(v), numbers, st.integers(0, 1 << 64)),
    st.builds(lambda n, v: varint(n << 3 | 1) + v, numbers, st.binary(min_size=8, max_size=8)),
    st.builds(lambda n, v: varint(n << 3 | 5) + v, numbers, st.binary(min_size=4, max_size=4)),
    st.builds(message, numbers, st.binary(max_size=200)),
    st.builds(
        lambda n, v: varint(n << 3 | 3) + message(1, v) + varint(n << 3 | 4), numbers, st.binary()
    ),
)


def of(*parts: st.SearchStrategy[bytes], max_size: int = 3) -> st.SearchStrategy[bytes]:
    """A message of some of these fields in any order, possibly repeated."""
    return st.lists(st.one_of(*parts), max_size=max_size).map(b"".join)


paddings = st.sampled_from([0, 0, 0, 1, 3])
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
bytes_list = of(st.binary(max_size=300).map(lambda v: message(1, v)), unknown)
int_list = of(
    st.builds(lambda v, p: b"\x08" + varint(v, p), int64, paddings),
    st.lists(int64, max_size=2).map(lambda v: message(1, b"".join(map(varint, v)))),
    unknown,
)
floats = st.lists(st.floats(width=32), max_size=2)
float_list = of(
    st.floats(width=32).map(lambda v: b"\x0d" + struct.pack("<f", v)),
    floats.map(lambda v: message(1, struct.pack(f"<{len(v)}f", *v))),
    unknown,
)
feature = of(
    st.builds(message, st.just(1), bytes_list, paddings),
    st.builds(message, st.just(2), float_list, paddings),
    st.builds(message, st.just(3), int_list, paddings),
    unknown,
    max_size=2,
)
names = st.one_of(
    st.sampled_from(["image/encoded", "label", "", "größe"]), st.text(min_size=100, max_size=400)
)
entry = of(
    names.map(lambda name: message(1, name.encode())),
    feature.map(lambda value: message(2, value)),
    unknown,
)
features = of(st.builds(message, st.just(1), entry, paddings), unknown, max_size=4)
example = of(st.builds(message, st.just(1), features, paddings), unknown)


def view_of(data: bytes):
    return lambda at, _: (data, at)


def pages_of(data: bytes):
    """A view that returns no byte more than requested, as at the end of a shard."""
    return lambda at, n: (data[at : at + n], 0)


def parsed(data: bytes) -> dict[bytes, tuple[int, list]]:
    """Kind and values of every feature that has a value, as protobuf parses them."""
    found: dict[bytes, tuple[int, list]] = {}
    for item in Example.FromString(data).features.feature:
        kind = item.value.WhichOneof("kind")
        found[item.key.encode()] = (0, [])
        if kind:
            number = {"bytes_list": BYTES, "float_list": FLOATS, "int64_list": INTS}[kind]
            found[item.key.encode()] = (number, list(getattr(item.value, kind).value))
    return found


@given(example)
def test_every_valid_example_is_read(data):
    expected = parsed(data)
    for view in (view_of(data), pages_of(data), view_of(data + bytes(4))):
        reader = FeatureReader(view, b"image/encoded", [b"label"])
        for located in (
            example_proto.locate_features(view, 0, len(data)),
            example_proto.locate_features(view, 0, len(data), frozenset(expected)),
            reader.read(0, len(data)),
            reader.read(0, len(data)),  # with the features that the reader remembers
        ):
            for name, (kind, values) in expected.items():
                value = located.get(name)
                single = values[0] if len(values) == 1 else None
                if value is None:
                    assert not values or name not in (b"label", b"image/encoded") or single is None
                    continue
                number = example_proto.read_int(view, value)
                assert number == (single if kind == INTS else None)
                if kind == BYTES and isinstance(value, str):
                    assert value == single.decode("utf-8", "replace")
                elif kind == BYTES:
                    assert (value[0] == BYTES) == (len(values) == 1)
                    assert value[0] == 0 or data[value[1] : value[2]] == single
    complete = example_proto.locate_features(view_of(data), 0, len(data))
    assert {name for name, (_, values) in expected.items() if values} <= set(complete)


@given(
    example,
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
    st.integers(0, 50),
)
def test_no_bytes_make_another_error(data, edits, cut):
    damaged = bytearray(data)
    for at, byte in edits:
        if damaged:
            damaged[at % len(damaged)] = byte
    payload = bytes(damaged[: max(len(damaged) - cut, 0)])
    try:
        FeatureReader(pages_of(payload), b"image/encoded", [b"label"]).read(0, len(payload))
        located = example_proto.locate_features(pages_of(payload), 0, len(payload))
    except example_proto.MALFORMED as error:
        if str(error) == "not the number of a field":
            return  # Python's protobuf accepts field 0 in an unknown group, that of C++, which DALI uses, does not
        with pytest.raises(DecodeError):
            Example.FromString(payload)
    else:
        assert all(0 <= start <= end <= len(payload) for _, start, end in located.values())


# --- shards -------------------------------------------------------------------------------------

IMAGE, LABEL = "image/encoded", "image/class/label"


def entry_of(name: bytes, value: bytes) -> bytes:
    return message(1, message(1, name) + message(2, value))


def features_of(*entries: bytes) -> bytes:
    return message(1, b"".join(entries))


def labeled(value: bytes) -> bytes:
    return entry_of(LABEL.encode(), message(3, value))


def unusual_example(expression: str, image: bytes, label: int) -> bytes:
    """Return a valid Example with an image and a label, and something that TensorFlow's writer does not write."""
    value = message(1, message(1, image))
    names = {
        "usual": make_example({IMAGE: image, LABEL: label}),
        "image": value,
        "label": varint(label),
        "one": entry_of(IMAGE.encode(), value),
        "other": labeled(message(1, varint(label))),
    }
    return evaluate(expression, globals(), names)


@pytest.mark.parametrize("expression", [row for _, row in read_rows(__file__, "unusual examples")])
def test_unusual_records_are_indexed_verified_and_loaded(expression, jpegs, tmp_path):
    payloads = [unusual_example(expression, image, 3 + n) for n, image in enumerate(jpegs[:3])]
    path = tmp_path / "train-00000.tfrecord"
    write_tfrecord(path, payloads)
    for payload, image in zip(payloads, jpegs, strict=False):
        assert parsed(payload)[IMAGE.encode()] == (BYTES, [image])
    result = index_shards([str(tmp_path)], workers=1)
    assert result.manifest is not None, result.errors
    assert not verify_dataset(str(tmp_path), decode=True, workers=1).problems
    resize = [{"ResizeImage": {"size": [16, 16]}}]
    with loaders.build(
        tmp_path, batch_size=3, transforms=resize, device="cpu", shuffle=False, framework="numpy"
    ) as loader:
        ((images, labels),) = loader
    assert labels.tolist() == [3, 4, 5]
    assert images.shape == (3, 3, 16, 16)


@pytest.mark.parametrize("name", [b"\xff", b"image/\xe9ncoded", b"\xed\xa0\x80"])
def test_names_that_are_not_utf_8_are_refused(name, jpegs, tmp_path):
    """Protobuf refuses them, and so does DALI."""
    payload = make_example({IMAGE: jpegs[0], LABEL: 1})
    payload = payload + message(1, entry_of(name, message(1, message(1, jpegs[1]))))
    with pytest.raises(DecodeError):
        Example.FromString(payload)
    path, index = tmp_path / "a.tfrecord", tmp_path / "a.idx"
    write_tfrecord(path, [payload])
    official_index(path, index)
    with pytest.raises(RuntimeError, match="Error in CPU operator"):
        read_with_dali([path], [index], [IMAGE], LABEL)
    index.unlink()
    with pytest.raises(ShardError, match=r"not a tf\.train\.Example") as caught:
        index_shards([str(tmp_path)], workers=1)
    assert caught.value.record == 0


def scan(data: bytes, components: Components):
    return list(tfrecord.scan(view_of(data), len(data), "a", ScanOptions(components)))


def test_names_in_messages_are_bounded(tmp_path, jpegs):
    payload = make_example({f"feature {number} " + "x" * 500: 1 for number in range(2000)})
    write_tfrecord(tmp_path / "a.tfrecord", [payload])
    with pytest.raises(ShardError, match="and 1,980 more") as caught:
        index_shards([str(tmp_path)], workers=1)
    assert len(str(caught.value)) < 3000
    write_tfrecord(tmp_path / "a.tfrecord", [make_example({"line\nfeed": 1, IMAGE: jpegs[0]})])
    with pytest.raises(ShardError, match=r"line\\nfeed"):
        scan((tmp_path / "a.tfrecord").read_bytes(), Components(("missing",), None))


def test_a_text_may_have_the_longest_length_and_no_more():
    def view(at, size):
        return b"-abcd-", at

    for most, text in ((4, "abcd"), (3, None)):
        assert example_proto.read_text(view, (BYTES, 1, 5), most) == text
    assert example_proto.read_text(view, (INTS, 1, 5), 4) is None

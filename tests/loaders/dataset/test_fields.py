"""Contents of a batch: labels, rows and table columns, as tensors of each framework."""

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from helpers.handmade import make_dataset
from helpers.pictures import encode

import loaders
from loaders.dataset.fields import Fields
from loaders.dataset.split import open_split
from loaders.dataset.tables import SampleTables
from manifests.errors import CallError, DamagedError
from manifests.schema import MAX_LABEL_OFFSET

FORMATS = pytest.mark.parametrize("fmt", ["tfrecord", "webdataset"])


def build(folder, **options):
    defaults = {"batch_size": 4, "transforms": "imagenet-eval", "device": "cpu", "num_threads": 1}
    return loaders.build(folder, **{**defaults, **options})


@pytest.fixture(scope="module")
def people(tmp_path_factory, dataprep):
    """9 images with extra columns: identity is text, camera is a number, weight is a number or missing."""
    folder = tmp_path_factory.mktemp("people")
    rows = []
    for number in range(9):
        path = folder / f"{number}.png"
        path.write_bytes(encode(np.full((70, 60, 3), 20 * number, np.uint8), "png"))
        weight = None if number == 4 else number / 2
        rows.append(
            {
                "path": path.name,
                "label": number % 3,
                "identity": f"p{number}",
                "camera": number,
                "weight": weight,
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), folder / "people.parquet")
    made = {}
    for fmt in ("tfrecord", "webdataset"):
        made[fmt] = folder / fmt
        done = dataprep(
            "convert",
            "--src",
            folder / "people.parquet",
            "--fmt",
            fmt,
            "--out",
            made[fmt],
            "--samples-per-shard",
            4,
        )
        assert done.returncode == 0, done.stderr
    return made


@FORMATS
@pytest.mark.parametrize("shuffle", [False, True])
def test_columns_match_their_images(people, fmt, shuffle):
    fields = ("camera", "identity", "image", "weight", "index", "label", "source")
    loader = build(
        people[fmt],
        fields=fields,
        shuffle=shuffle,
        last_batch="partial",
        dtype="uint8",
        transforms=TO_32,
    )
    seen, indexes = [], []
    for camera, identity, image, weight, index, label, source in loader:
        assert camera.dtype == index.dtype == label.dtype == torch.int64
        assert isinstance(identity, list)
        assert weight[0] is None or isinstance(weight[0], float)
        for row, number in enumerate(camera.tolist()):
            assert int(image[row].float().mean().round()) == 20 * number
            assert identity[row] == f"p{number}"
            assert weight[row] == (None if number == 4 else number / 2)
            assert label[row] == number % 3
            assert source[row].endswith(f"{number}.png")
        seen += camera.tolist()
        indexes += index.tolist()
    assert sorted(seen) == sorted(indexes) == list(range(9))
    if not shuffle:
        assert indexes == list(range(9))


TO_32 = ({"Resize": {"size": 32}}, {"CenterCrop": {"size": 32}})


@FORMATS
def test_images_alone_and_labels_alone(people, fmt):
    (images,) = next(iter(build(people[fmt], fields=("image",))))
    assert images.shape == (4, 3, 224, 224)
    (labels,) = next(iter(build(people[fmt], fields=("label",))))
    assert labels.shape == (4,)


@FORMATS
@pytest.mark.parametrize("transforms", ["imagenet-train", "modern-train"])
@pytest.mark.filterwarnings("error")
def test_without_the_image_field_nothing_is_decoded(make_dataset, mixed, fmt, transforms):
    """Labels, also mixed ones, are the same as with images, even if the images cannot be decoded."""
    options = {"transforms": transforms, "shuffle": False}
    whole = [labels for _, labels in build(make_dataset(fmt, mixed, name="sound"), **options)]
    broken = make_dataset(
        fmt, [(extension, b"no image", label) for extension, _, label in mixed], name="broken"
    )
    for fields in (("label",), ("index", "label", "key")):
        alone = [batch[fields.index("label")] for batch in build(broken, fields=fields, **options)]
        assert all(torch.equal(a, b) for a, b in zip(alone, whole, strict=True))
    with pytest.raises(DamagedError):
        list(build(broken, **options))
    assert "no image is decoded" in build(broken, fields=("label",), **options).explain()


@pytest.mark.filterwarnings("error")
def test_a_column_with_the_name_of_a_field(tmp_path, dataprep):
    (tmp_path / "0.png").write_bytes(encode(np.zeros((9, 9, 3), np.uint8), "png"))
    (tmp_path / "list.csv").write_text("path,label,index,image\n0.png,cat,77,x\n")
    done = dataprep("convert", "--src", tmp_path / "list.csv", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    options = {"batch_size": 1, "transforms": TO_32}
    ((images, _),) = build(tmp_path / "out", **options)
    assert images.shape == (1, 3, 32, 32)
    with pytest.warns(
        UserWarning, match='"index" is the row of the sample in the split, not .*column:index'
    ):
        loader = build(tmp_path / "out", fields=("index",), **options)
    assert [index.tolist() for (index,) in loader] == [[0]]
    loader = build(tmp_path / "out", fields=("column:index", "column:image"), **options)
    assert [(index.tolist(), image) for index, image in loader] == [([77], ["x"])]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("image", "camra"), "fields uses 'camra', .* did you mean 'camera'"),
        (("image", "xyz"), "valid names are 'image', 'label', 'index', 'valid', 'key', "),
        ((), "fields is empty"),
        (("image", "image"), "fields contains the same name twice"),
        ("image", "fields must be a list of names, got 'image'"),
    ],
)
def test_wrong_fields(people, fields, message):
    with pytest.raises(CallError, match=message):
        build(people["tfrecord"], fields=fields)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "uint8"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_types_and_layouts(people, dtype, layout):
    options = {"transforms": TO_32} if dtype == "uint8" else {}
    images, _ = next(
        iter(build(people["webdataset"], dtype=dtype, layout=layout, shuffle=False, **options))
    )
    assert images.dtype == getattr(torch, dtype)
    side = 32 if dtype == "uint8" else 224
    assert images.shape == ((4, 3, side, side) if layout == "NCHW" else (4, side, side, 3))
    exact, _ = next(
        iter(build(people["webdataset"], dtype="float32", layout=layout, shuffle=False, **options))
    )
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 0, "uint8": 0}[dtype]
    assert (images.float() - exact).abs().max() <= tolerance


def test_uint8_needs_transforms_without_normalization(people):
    with pytest.raises(
        CallError, match='dtype="uint8", but the transforms return normalized float values'
    ):
        build(people["tfrecord"], dtype="uint8")


def test_numpy_equals_torch(people):
    options = {"shuffle": False, "fields": ("image", "label", "identity"), "dtype": "float32"}
    images, labels, identities = next(iter(build(people["tfrecord"], framework="numpy", **options)))
    expected = next(iter(build(people["tfrecord"], **options)))
    assert isinstance(images, np.ndarray)
    assert isinstance(labels, np.ndarray)
    assert np.array_equal(images, expected[0].numpy())
    assert np.array_equal(labels, expected[1].numpy())
    assert identities == expected[2]


@pytest.mark.parametrize("framework", ["jax", "paddle"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_and_paddle_equal_torch(people, framework, dtype):
    pytest.importorskip(framework)
    options = {"shuffle": False, "dtype": dtype}
    images, labels = next(iter(build(people["tfrecord"], framework=framework, **options)))
    expected = next(iter(build(people["tfrecord"], **options)))
    assert type(images).__module__.startswith((framework, "jaxlib"))
    assert np.array_equal(np.asarray(images.astype("float32")), expected[0].float().numpy())
    assert np.asarray(labels).tolist() == expected[1].tolist()


def test_a_framework_that_is_not_installed(people, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "paddle", None)
    with pytest.raises(CallError, match="framework='paddle' is not installed"):
        build(people["tfrecord"], framework="paddle")


def test_numpy_has_no_bfloat16(people):
    with pytest.raises(CallError, match='NumPy has no dtype "bfloat16"'):
        build(people["tfrecord"], framework="numpy", dtype="bfloat16")


def test_a_function_changes_the_batch(people):
    def darker(images):
        return images / 2

    plain, _ = next(
        iter(build(people["tfrecord"], shuffle=False, dtype="float32", transforms=TO_32))
    )
    dark, _ = next(
        iter(build(people["tfrecord"], shuffle=False, dtype="float32", transforms=[*TO_32, darker]))
    )
    assert torch.equal(dark, plain / 2)


@pytest.mark.parametrize("function", [lambda images: None, lambda images: images[:1]])
def test_a_function_must_return_the_whole_batch(people, function):
    with pytest.raises(CallError, match="must return a tensor of 4 images"):
        next(iter(build(people["tfrecord"], transforms=[*TO_32, function])))


@FORMATS
@pytest.mark.parametrize(
    "text", [b"1_0", b" 1", b"+1", b"-1", b"1 ", b"0x1", b"\xc2\xb2", b"1\n\n2"]
)
def test_text_labels_are_plain_decimals(make_dataset, mixed, fmt, text):
    if fmt == "tfrecord":
        pytest.skip("TFRecord stores labels as numbers")
    folder = make_dataset(
        "webdataset", mixed, label_texts=lambda label: text if label == 1 else b"%d" % label
    )
    with pytest.raises(DamagedError, match="the label of a record is not a decimal number"):
        list(build(folder, last_batch="partial", shuffle=False))


def test_explain_shows_data_transforms_and_notes(people):
    text = build(people["tfrecord"], transforms="imagenet-train").explain()
    for part in (
        "9 samples in 3 tfrecord shards",
        "2 batches of 4",
        "RandomResizedCrop",
        "only the cropped region is decoded",
    ):
        assert part in text
    mixed = build(people["tfrecord"], transforms=[{"RandomRot90": {}}, *TO_32])
    assert "note: " in mixed.explain()


def test_columns_of_integers_and_floats_keep_their_values(people, tmp_path):
    """From 2**53 on, float64 does not contain every integer, so two identities could become one."""
    folder = tmp_path / "copy"
    shutil.copytree(people["tfrecord"], folder)
    split = open_split(folder, "train")
    large = [2**53 + number for number in range(4)]
    for shard, column in zip(split.shards, ([*large], [0.5, 1.5, 2.5, 3.5], [7]), strict=True):
        table = pq.read_table(split.path(shard.table))
        place = table.column_names.index("camera")
        pq.write_table(table.set_column(place, "camera", pa.array(column)), split.path(shard.table))
    found = SampleTables(split).columns(["camera"], requested_by="a test")["camera"]
    assert found.tolist() == [*large, 0.5, 1.5, 2.5, 3.5, 7]


@pytest.mark.parametrize("stored", [np.iinfo(np.int64).min, np.iinfo(np.int64).max])
@pytest.mark.parametrize("offset", [-MAX_LABEL_OFFSET, -2, -1, 1, 2, MAX_LABEL_OFFSET])
def test_labels_do_not_wrap_around(offset, stored, tmp_path):
    """Without class names, -2**63 - 2 would be read as a large positive label."""
    split = open_split(
        make_dataset(tmp_path / "out", "tfrecord", [("jpg", b"image", 0)], shards=1), "train"
    )
    components = replace(split.manifest.components, label_offset=offset)
    split = replace(split, manifest=replace(split.manifest, classes=(), components=components))
    with pytest.raises(DamagedError, match="labels go from 0 to 10000000"):
        Fields(split, SampleTables(split), ["label"]).values(np.array([[stored]]), None)

"""Arrays as fields of a batch: each row belongs to its image, whatever chooses the samples."""

import shutil

import numpy as np
import pytest
import torch
from helpers.loading import build, converted, take
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows

import loaders
from manifests.errors import CallError, TableError

FIELDS = ("image", "embedding", "label", "column:tokens")
PIXELS = [{"Resize": {"size": [16, 16]}}]


def write(folder, first=0, dtype=np.float32):
    """Write 24 gray images: the gray of each is ten times the first number of its array."""
    for number in range(24):
        path = folder / f"class {number % 4}" / f"{number + first:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(np.full((16, 16, 3), 10 * number, np.uint8), "png"))
        np.save(path.with_suffix(".npy"), np.array([number, 1, 2], dtype))
        np.save(path.with_suffix(".t.npy"), np.array([number, number % 4]))
    return folder


ARRAYS = ("embedding={stem}.npy", "tokens={stem}.t.npy")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Datasets with arrays of float32 in both formats, and one with arrays of float16."""
    root, made = tmp_path_factory.mktemp("arrays"), {}
    for name, dtype in (("tfrecord", "f4"), ("webdataset", "f4"), ("other", "f2")):
        source = write(root / f"{name} source", dtype=dtype)
        fmt = "tfrecord" if name == "other" else name
        made[name] = converted(source, root / name, fmt, array=ARRAYS)
    return made


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(("row", "options"), read_rows(__file__, "rows belong to their images"))
def test_rows_belong_to_their_images(row, options, mmap, datasets):
    names, options = evaluate(row), evaluate(options, vars(loaders))
    dataset = [datasets[name] for name in names] if len(names) > 1 else datasets[names[0]]
    given = {"batch_size": 6, "transforms": PIXELS, "fields": FIELDS, "mmap": mmap, **options}
    with build(dataset, dtype="float32", **given) as loader:
        for images, embedding, label, tokens in loader:
            views, scale = (images, 255) if "views" in options else ((images,), 1)
            assert (embedding.shape, embedding.dtype) == ((6, 3), torch.float32)
            assert tokens.dtype == torch.int64
            for view in views:
                assert torch.allclose(view.mean((1, 2, 3)) * scale, 10 * embedding[:, 0], atol=1e-3)
            assert torch.equal(tokens[:, 0], embedding[:, 0].long())
            assert torch.equal(tokens[:, 1], label)


def test_what_is_refused(datasets, tmp_path):
    given = {"transforms": PIXELS, "fields": ("embedding",)}
    with pytest.raises(
        TableError, match="'embedding' has 3 float16 for each sample, but 3 float32"
    ):
        build([datasets["tfrecord"], datasets["other"]], **given)
    with pytest.raises(CallError, match="did you mean 'embedding'"):
        build(datasets["tfrecord"], **{**given, "fields": ("embeding",)})
    with pytest.raises(CallError, match="uses 'embedding', which is an array of"):
        build(datasets["tfrecord"], **given, sampler=loaders.ClassBalancedSampler("embedding"))
    out = shutil.copytree(datasets["tfrecord"], tmp_path / "out")
    path = out / "train-00000.embedding.npy"
    content = path.read_bytes()
    path.unlink()
    for changed, message in (
        (None, r"cannot be read \(No such file"),
        (content[:-1], "is [0-9]+ bytes long"),
        (content.replace(b"<f4", b"<i4"), "header|does not contain"),
    ):
        if changed is not None:
            path.write_bytes(changed)
        for mmap in (True, False):
            with (
                build(out, shuffle=False, mmap=mmap, **given) as loader,
                pytest.raises(TableError, match=f"train-00000.embedding.npy: .*({message})"),
            ):
                take(loader, 1)

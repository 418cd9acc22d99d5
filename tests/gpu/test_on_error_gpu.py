"""An image that the GPU cannot decode is named, and with `on_error` the epoch continues without it."""

from collections import Counter

import pytest
from helpers import damaged
from helpers.damaged import BAD, PER_SHARD, SAMPLES, damage, make, rows_of
from helpers.gpu import on_cpu
from helpers.loading import equal, state_after

from loaders.dataset.split import open_split
from manifests.errors import DamagedError

KINDS = pytest.mark.parametrize("kind", ["jpg", "png"])


def build(folder, **options):
    return damaged.build(folder, **{"device": "gpu", "decoder": "gpu", **options})


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    return {kind: damage(make(root / kind, "webdataset", kind=kind)) for kind in ("jpg", "png")}


@KINDS
@pytest.mark.parametrize("shuffle", [False, "buffer"])
def test_the_error_names_the_image(folders, kind, shuffle):
    message = "the image with the key .* cannot be decoded"
    with pytest.raises(DamagedError, match=message) as caught:
        list(build(folders[kind], shuffle=shuffle))
    names = [shard.name for shard in open_split(folders[kind], "train").shards]
    shard = names.index(caught.value.file.rpartition("/")[2])
    assert PER_SHARD * shard + caught.value.record in BAD


@KINDS
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_every_good_sample_is_read(folders, kind, on_error):
    with build(folders[kind], on_error=on_error) as loader:
        for _ in range(3):
            counts = Counter(rows_of(loader))
            assert set(counts) == set(range(SAMPLES)) - set(BAD)
            # The last batch, of which nothing is left, repeats one sample in training.
            expected = SAMPLES - len(BAD) + 1 if on_error == "skip" else SAMPLES
            assert sum(counts.values()) == expected
        assert {error.row for error in loader.errors} == set(BAD)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_checkpoint_resumes_to_the_same_batches(folders, on_error):
    random = [{"RandCropImage": {"size": 24}}, {"RandFlipImage": {"flip_code": 1}}]
    options = {"on_error": on_error, "transforms": random}
    with build(folders["jpg"], **options) as whole, build(folders["jpg"], **options) as loader:
        loader.load_state_dict(state_after(whole, 5))
        whole.set_epoch(0)
        assert equal(on_cpu(loader), on_cpu(whole)[5:])

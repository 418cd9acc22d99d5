"""What identifies a split."""

import hashlib

from loaders.dataset.split import open_split


def test_the_fingerprint_is_that_of_the_text_of_all_files_and_is_computed_once(make_dataset, mixed):
    """Checkpoints of earlier releases contain it."""
    split = open_split(make_dataset("webdataset", mixed, shards=5), "train")
    text = repr([(shard.file, shard.index) for shard in split.shards])
    assert split.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert split.fingerprint is split.fingerprint

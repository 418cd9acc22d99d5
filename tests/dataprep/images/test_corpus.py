"""All damaged and unusual images through `convert_dataset`, and what DALI decodes of those that are kept."""

from __future__ import annotations

import json

import pytest
from helpers.bad_images import cases, write_cases
from helpers.shards import decode_with_dali, stored_samples

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset

CASES = list(cases())
FORMATS = ("tfrecord", "webdataset")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_cases(tmp_path_factory.mktemp("corpus") / "images")


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("validation", ["header", "decode"])
def test_corpus_is_stored_or_rejected(fmt, validation, corpus, tmp_path):
    """Every image is stored byte for byte or listed in rejected.jsonl with its reason."""
    out = tmp_path / "out"
    convert_dataset(
        read_source(str(corpus)), str(out), Options(fmt=fmt, validate=validation), workers=1
    )
    expected = {f"class/{case.name}": getattr(case, validation) for case in CASES}
    content = {f"class/{case.name}": case.data for case in CASES}
    assert {row.source: data for row, data in stored_samples(out)} == {
        name: content[name] for name, reason in expected.items() if not reason
    }
    lines = [json.loads(line) for line in (out / "rejected.jsonl").read_text().splitlines()]
    assert {line["source"]: line["reason"] for line in lines} == {
        name: reason for name, reason in expected.items() if reason
    }
    assert all(list(line) == ["source", "reason", "detail"] and line["detail"] for line in lines)
    assert verify_dataset(str(out), workers=1).problems == ()


@pytest.mark.parametrize("fmt", FORMATS)
def test_dali_decodes_all_images_that_decode_validation_keeps(fmt, corpus, tmp_path):
    out = tmp_path / "out"
    convert_dataset(
        read_source(str(corpus)), str(out), Options(fmt=fmt, validate="decode"), workers=1
    )
    rows = [row for row, _ in stored_samples(out)]
    images = decode_with_dali(out)
    assert len(images) == len(rows)
    for row, image in zip(rows, images, strict=True):
        rotated = row.source in (
            "class/orientation 6.jpg",
            "class/orientation 8.jpg",
            "class/thumbnail.jpg",
        )
        assert image.shape == (
            (row.width, row.height, 3) if rotated else (row.height, row.width, 3)
        ), row.source
        assert image.std() > 1 or row.width == 1, row.source

"""What `verify` prints: a bounded list of problems, and the limits of a manifest that nobody vouches for."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from helpers.bombs import flat_png

from dataprep.options import MAX_PIXELS, Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification import verify
from dataprep.verification.shard import MAX_PER_FILE
from manifests.store import manifest_bytes, read_manifest

# --- many problems ------------------------------------------------------------------------------


@pytest.fixture
def truncated(photos, tmp_path):
    """A dataset of two shards with 180 samples each, both cut off within their first record."""
    out = tmp_path / "out"
    convert_dataset(read_source(str(photos)), str(out), Options(shard_samples=180), workers=1)
    for shard in out.glob("*.tfrecord"):
        shard.write_bytes(shard.read_bytes()[:100])
    return out


def test_the_first_problems_of_each_file_are_listed(truncated, invoke):
    result = verify.verify_dataset(str(truncated), workers=1)
    assert [problem.file for problem in result.problems] == [
        f"train-{number:05d}.tfrecord" for number in (0, 1) for _ in range(MAX_PER_FILE)
    ]
    assert all(count >= 180 for count in result.counts.values())
    *lines, first, second, last = invoke("verify", truncated, status=1).stdout.splitlines()
    assert len(lines) == 2 * MAX_PER_FILE
    counts = list(result.counts.values())
    assert first == f"train-00000.tfrecord: {counts[0] - MAX_PER_FILE} problems more"
    assert second == f"train-00001.tfrecord: {counts[1] - MAX_PER_FILE} problems more"
    assert last == f"{sum(counts)} problems in {truncated}; the first 200 are listed"


def test_the_problems_of_all_files_have_a_limit(truncated, invoke, monkeypatch):
    monkeypatch.setattr(verify, "MAX_PROBLEMS", 30)
    *lines, more, last = invoke("verify", truncated, "--workers", 1, status=1).stdout.splitlines()
    assert len(lines) == 30
    assert re.fullmatch(r"train-00000.tfrecord: \d+ problems more", more)
    assert re.fullmatch(r"\d+ problems in .*; the first 30 are listed", last)


# --- the limit of pixels ------------------------------------------------------------------------


def test_a_manifest_does_not_raise_the_limit_of_pixels(tmp_path, invoke):
    """The manifest is as untrusted as the images. An option states that the user trusts both."""
    (tmp_path / "images" / "class").mkdir(parents=True)
    (tmp_path / "images" / "class" / "flat.png").write_bytes(
        flat_png(5200, 0)
    )  # 27 million pixels in 100 KB
    out, limit = tmp_path / "out", 2 * MAX_PIXELS
    convert_dataset(
        read_source(str(tmp_path / "images")), str(out), Options(max_pixels=limit), workers=1
    )
    assert "no problems" in invoke("verify", out).stdout
    problem, _ = invoke("verify", "--decode", out, status=1).stdout.splitlines()
    assert "record 0" in problem
    assert "too-large" in problem
    assert problem.endswith(
        f"Hint: the dataset was converted with --max-pixels {limit}; if you trust it, verify it"
        " with this option, too."
    )
    assert "no problems" in invoke("verify", "--decode", "--max-pixels", limit, out).stdout


def test_a_lower_limit_of_the_conversion_holds(photos, tmp_path, invoke):
    out = tmp_path / "out"
    convert_dataset(read_source(str(photos)), str(out), Options(), workers=1)
    manifest = read_manifest(out)
    options = {**manifest.options, "max_pixels": 10}
    (out / "manifest.json").write_bytes(manifest_bytes(replace(manifest, options=options)))
    problems = invoke("verify", "--decode", out, status=1).stdout
    assert "the limit is 10" in problems
    assert "--max-pixels" not in problems
    assert "no problems" in invoke("verify", "--decode", "--max-pixels", 10_000, out).stdout
    assert json.loads((out / "manifest.json").read_text())["options"]["max_pixels"] == 10


def test_the_limit_is_for_decoding(photos, invoke):
    assert (
        "--max-pixels requires --decode. Hint: add --decode"
        in invoke("verify", "--max-pixels", 5, photos, status=2).output
    )

"""`dataprep report`: the page and its JSON, of sound, damaged and unusual datasets."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.pictures import encode, photo
from PIL import Image

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "evil\u202egnp.exe",
    "{{ 7 * 7 }}",
    "n" * 240,
)


class Page(HTMLParser):
    """Collects the tags of a page, its visible text, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(path.read_text("utf-8"))
        self.ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a"]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """An ImageFolder with a leak, a wrong label, a copy, a black image, and images that are rejected."""
    root = tmp_path_factory.mktemp("source") / "zoo"
    number = 0
    for split, counts in (("train", (24, 6, 2)), ("val", (4, 2, 1))):
        for name, count in zip(("cat", "dog", "emu"), counts, strict=True):
            folder = root / split / name
            folder.mkdir(parents=True)
            for _ in range(count):
                kind = ("JPEG", "JPEG", "PNG", "WEBP")[number % 4]
                image = encode(photo(number, 60 + number, 48), kind)
                (folder / f"{number:03d}.img.{kind.lower()}").write_bytes(image)
                number += 1
    cats = sorted((root / "train" / "cat").iterdir())
    shutil.copy(cats[0], root / "val" / "cat" / "leak.jpeg")
    shutil.copy(cats[1], root / "train" / "dog" / "conflict.jpeg")
    shutil.copy(cats[4], root / "train" / "cat" / "copy.jpeg")
    (root / "train" / "dog" / "black.png").write_bytes(encode(Image.new("RGB", (50, 40)), "PNG"))
    (root / "train" / "emu" / "cut.jpeg").write_bytes(encode(photo(99, 200, 150))[:2000])
    (root / "train" / "emu" / "page.jpeg").write_text("<html><script>alert(1)</script>")
    return root


@pytest.fixture(scope="module")
def dataset(source, tmp_path_factory, dataprep) -> Path:
    out = tmp_path_factory.mktemp("dataset") / "zoo-tfrecord"
    call = ("convert", "--src", source, "--out", out, "--samples-per-shard", 10, "--max-rejected", 1)
    assert dataprep(*call).returncode == 0
    return out


@pytest.fixture
def run(invoke, tmp_path):
    """A function that makes a report in one process; it returns the JSON and the page."""

    def make(dataset, *options, status=0, name="report"):
        out = tmp_path / f"{name}.html"
        invoke("report", dataset, "--out", out, "--workers", 1, *options, status=status)
        return json.loads(out.with_suffix(".json").read_text("utf-8")), Page(out)

    return make


def titles(data):
    return [finding["title"] for finding in data["findings"]]


# --- what the page says -------------------------------------------------------------------------


def test_facts_match_the_source(run, dataset, source):
    data, page = run(dataset, "--source", source)
    assert data["dataset"] == "zoo-tfrecord"
    train, val = data["splits"]
    assert (train["name"], train["samples"], val["samples"]) == ("train", 35, 8)
    assert {each["name"]: each["samples"] for each in data["classes"]} == {"cat": [25, 5], "dog": [8, 2], "emu": [2, 1]}
    stored = {kind: sum(1 for path in source.rglob(f"*.{kind}")) for kind in ("jpeg", "png", "webp")}
    assert data["looks"]["formats"] == {**stored, "jpeg": stored["jpeg"] - 2}
    assert data["rejected"]["total"] == 2
    assert data["rejected"]["reasons"] == {"not-an-image": 1, "truncated": 1}
    assert data["rejected"]["folders"] == {"train/emu": 2}
    assert data["copies"]["leaked"] == {"val in train": 1}
    assert data["copies"]["conflicting"] == 1
    assert data["copies"]["surplus"] == 3
    leak = {image["source"] for image in data["copies"]["leaks"][0]["images"]}
    assert leak == {"train/cat/000.img.jpeg", "val/cat/leak.jpeg"}
    assert data["looks"]["odd"]["Darkest"][0]["source"] == "train/dog/black.png"
    assert data["looks"]["odd"]["Flattest"][0]["source"] == "train/dog/black.png"
    assert "cat" in page.text
    assert "train/emu/cut.jpeg" in page.text


def test_findings_name_the_leak_and_the_worst_class(run, dataset):
    found = titles(run(dataset)[0])
    assert found[:2] == ["1 image of val is also in train", "1 image has several labels"]
    assert "\u201cemu\u201d is the class with the largest share of images with problems" in found
    assert "2 source images were rejected" in found
    assert "1 of 43 images show almost one color" in found


def test_a_clean_dataset_has_no_problems(run, make_photos, invoke, tmp_path):
    invoke("convert", "--src", make_photos(tmp_path / "photos", 12, side=300), "--out", tmp_path / "clean")
    data, page = run(tmp_path / "clean")
    assert all(finding["severity"] == "check" for finding in data["findings"])
    assert "Every source image was written." in page.text
    assert "All are different." in page.text


def test_every_link_leads_somewhere_and_every_id_is_unique(run, dataset):
    page = run(dataset)[1]
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links()} <= set(page.ids)


def test_the_page_is_offline_and_runs_no_script(run, dataset):
    page = run(dataset)[1]
    assert not [tag for tag, _ in page.tags if tag in ("script", "iframe", "object", "embed", "form")]
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            if value := attributes.get(name):
                assert value.startswith(("#", "data:")), (tag, value[:80])
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_the_page_is_accessible(run, dataset):
    page = run(dataset)[1]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
    images = [a for tag, a in page.tags if tag == "svg" and "aria-hidden" not in a]
    assert len(images) > 20
    assert all(a["role"] == "img" and a["aria-label"] for a in images)
    assert next(a for tag, a in page.tags if tag == "html")["lang"] == "en"
    assert all("scope" in a for tag, a in page.tags if tag == "th")


def test_the_same_dataset_gives_the_same_bytes(invoke, dataset, source, tmp_path):
    copy = tmp_path / "elsewhere" / dataset.name
    shutil.copytree(dataset, copy)
    for name, folder, workers in (("a", dataset, 1), ("b", copy, 3)):
        options = ("--out", tmp_path / f"{name}.html", "--workers", workers, "--source", source)
        invoke("report", folder, *options)
    for suffix in (".html", ".json"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    invoke("report", dataset, "--out", tmp_path / "c.html", "--seed", 1, "--source", source, "--workers", 1)
    assert (tmp_path / "c.html").read_bytes() != (tmp_path / "a.html").read_bytes()

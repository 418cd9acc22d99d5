"""Run commands in a folder, and keep what they print and the digests of the files that they write.

A recording is a text: commands with their output, and lists of files with their SHA-256. Lines of
stdout begin with ``| ``, lines of stderr with ``! ``. Lines with ``$ ``, ``@ `` and ``# `` are the scenario, which is played again:
commands, steps of `scenarios` and notes. A list of files has the options of the
manifest apart, and the digest of the manifest without them, so that a changed option shows as such.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import socket
import zipfile
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

from helpers.make_sources import Image

from manifests.remote.store import Store

#: Libraries that decide the bytes of files.
LIBRARIES = ("Pillow", "cykooz-resizer", "numpy", "pyarrow", "simplejpeg")

#: What differs between two runs: durations, speeds, dates, free space, process IDs.
_CHANGING = (
    (r"\b\d[\d,.]* (?:images|samples|shards|files)/s\b", "SPEED"),
    (r"\b\d[\d,.]* [KMG]?i?B/s\b", "SPEED"),
    (r"\b\d+(?:\.\d+)? (?:ms|s|min|h|seconds|minutes|hours)\b", "TIME"),
    (r'"(seconds|seconds_left|images_per_second)": [\d.e-]+', r'"\1": TIME'),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "DATE"),
    (r"\b[\d,.]+ [KMGT]?B free\b", "SPACE free"),
    (r"\bprocess \d+\b", "process PID"),
    (r"\bCPU x86-64-v\d\b", "CPU LEVEL"),
)
_DIGEST = re.compile(r"^  [0-9a-f]{64}  ")
_SIZE = re.compile(r"\b\d[\d,.]* ([KMG]i?)?B\b")


def library_versions() -> dict[str, str]:
    """Return the installed versions of `LIBRARIES`."""
    return {name: version(name) for name in LIBRARIES}


def without_digests(text: str) -> str:
    """Return a recording without what depends on versions of libraries."""
    lines = [_SIZE.sub("SIZE", line) for line in text.splitlines() if not _DIGEST.match(line)]
    return "\n".join(lines) + "\n"


def images(prefix: str, *patterns: str) -> dict[str, bytes]:
    """Return the committed images below a folder of `images.zip` that fit a pattern, and no `!pattern`, by path."""
    without = [each[1:] for each in patterns if each[0] == "!"]
    only = [each for each in patterns if each[0] != "!"] or ["*"]
    with zipfile.ZipFile(Path(__file__).with_name("images.zip")) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{prefix}/")]
        found = {name.removeprefix(f"{prefix}/"): archive.read(name) for name in names}
    return {
        path: data
        for path, data in found.items()
        if any(fnmatch(path, each) for each in only) and not any(fnmatch(path, n) for n in without)
    }


#: Boxes of the annotated images as COCO has them: image, category, box.
BOXES = (
    (0, 1, (2, 3, 10, 8)),
    (0, 7, (0, 0, 31.5, 12)),
    (1, 2, (5, 5, 9, 9)),
    (3, 1, (1, 2, 30, 8)),
)
CATEGORIES = {1: "person", 2: "bicycle", 7: "train"}
#: Height and width of the annotated images.
SIZES = ((24, 32), (20, 26), (30, 22), (16, 40), (20, 20))


def coco_text(name: str, first: int, *annotations: Mapping[str, object]) -> str:
    """Return the boxes as COCO has them: images have numbers from `first`, and names by a pattern."""
    pictures = []
    for number, (height, width) in enumerate(SIZES):
        size = {"width": width, "height": height}
        pictures.append({"id": first + number, "file_name": name.format(number), **size})
    boxes = []
    for (image, category, box), more in zip(BOXES, annotations, strict=True):
        boxes.append({"image_id": first + image, "category_id": category, "bbox": box, **more})
    categories = [{"id": key, "name": name} for key, name in CATEGORIES.items()]
    return json.dumps({"images": pictures, "annotations": boxes, "categories": categories})


#: Class names of the images in ``splits/``, in label order.
CLASSES = ("cat", "dog", "eel")


def split_images(*, broken: bool = True) -> list[Image]:
    """Return the images of ``splits/`` as `helpers.make_sources` takes them."""
    made = []
    for path, data in images("splits").items():
        split, name, file = path.split("/")
        if broken or file != "broken.jpg":
            made.append(Image(split, file, CLASSES.index(name), data))
    return made


class Recorder:
    """Records the commands of one scenario.

    Args:
        folder: an empty working directory. Commands run in it, so paths in outputs are relative.
        run: runs `dataprep` in a warm process and returns a `subprocess.CompletedProcess`.
        bucket: a function that starts the object store and returns an empty folder in it.

    """

    def __init__(self, folder: Path, run: Callable[..., object], bucket: Callable[[], Store]):
        self.folder = folder
        self.lines: list[str] = []
        self._run, self._make_bucket = run, bucket
        self._bucket: Store | None = None
        self._listed: dict[str, dict[str, str]] = {}

    @property
    def bucket(self) -> Store:
        if self._bucket is None:
            self._bucket = self._make_bucket()
        return self._bucket

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def play(self, record: str, steps: Mapping[str, Callable[..., None]]) -> None:
        """Do what a record has done: its commands ($), steps (@) and notes (#)."""
        for line in record.splitlines():
            mark, _, rest = line.partition(" ")
            if mark == "#":
                self.lines += ["", line]
            elif mark == "$":
                self.run(*shlex.split(rest)[1:])
            elif mark == "@":
                name, *arguments = shlex.split(rest)
                follows = bool(self.lines) and self.lines[-1].startswith("@ ")
                if name not in ("files", "page") and not follows:
                    self.lines.append("")
                self.lines.append(line)
                steps[name](self, *arguments)

    def write(self, name: str, content: str | bytes) -> str:
        """Write a file and return its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def run(self, *arguments: str) -> None:
        """Run a command, and record its output and exit status."""
        words = [str(self.bucket) + word[3:] if word[:4] == "URL/" else word for word in arguments]
        done = self._run(*words, cwd=self.folder)
        self.lines += ["", f"$ dataprep {self._clean(shlex.join(words))}"]
        for mark, output in (("|", done.stdout), ("!", done.stderr)):
            for line in self._clean(output).splitlines():
                self.lines.append(f"{mark} {line}".rstrip())
        self.lines.append(f"exit status {done.returncode}")

    def files(self, out: str) -> None:
        """Record the files of a dataset that are new, changed or gone since they were last recorded."""
        content = self._content(out.replace("URL", str(self.bucket)) if "URL" in out else out)
        lines = {name: digest(name, data) for name, data in content.items()}
        if "manifest.json" in content:
            lines |= _manifest_lines(json.loads(content["manifest.json"]))
        before = self._listed.get(out, {})
        self._listed[out] = lines
        self.lines.append(f"files of {self._clean(out)}:" if before != lines else "the same files")
        for name, line in sorted(lines.items()):
            if before.get(name) != line:
                self.lines.append(line)
        for name in sorted(before.keys() - lines):
            self.lines.append(f"  gone: {name}")

    def _content(self, out: str) -> dict[str, bytes]:
        if "://" in out:
            store = Store(self.bucket.url.join(out.removeprefix(f"{self.bucket}/")))
            found = {info.name: bytes(store.get(info.name)) for info in store.list_objects()}
        else:
            root = self.folder / out
            paths = [path for path in root.rglob("*") if path.is_file()]
            found = {str(path.relative_to(root)): path.read_bytes() for path in paths}
        return {name: data for name, data in found.items() if not name.startswith(".dataprep/")}

    def _clean(self, text: str) -> str:
        """Replace paths, names of this machine and times."""
        places = {str(self.folder): "DIR", os.path.realpath(self.folder): "DIR"}
        if self._bucket is not None:
            places[str(self._bucket)] = "URL"
        return cleaned(text, places)


def cleaned(text: str, places: Mapping[str, str]) -> str:
    """Return a text with names in place of paths, of this machine and of times."""
    for place, name in places.items():
        text = text.replace(place, name)
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
    for pattern, name in _CHANGING:
        text = re.sub(pattern, name, text)
    return text


def difference(path: Path, found: str, *, exact: bool) -> str:
    """Return how a text differs from the record in a file; empty if it does not.

    If not `exact`, digests and sizes of files are not compared.
    """
    recorded = path.read_text("utf-8")
    if not exact:
        recorded, found = without_digests(recorded), without_digests(found)
    lines = difflib.unified_diff(
        recorded.splitlines(), found.splitlines(), f"records/{path.name}", "now", lineterm=""
    )
    return "\n".join(lines)


def digest(name: str, data: bytes) -> str:
    return f"  {hashlib.sha256(data).hexdigest()}  {name}"


def _manifest_lines(manifest: dict[str, Any]) -> dict[str, str]:
    """Return lines for the options in a manifest, and for all the rest of it."""
    options = manifest.pop("options", {})
    # These digests follow from all of the content.
    manifest.pop("checksum", None)
    for revision in manifest.get("revisions", ()):
        revision.pop("parent")
    plan = options.pop("plan", "none")
    options.pop("made_by", None)
    rest = json.dumps(manifest).encode()
    lines = {
        "~": digest("manifest.json without options", rest),
        "~ plan": digest("fingerprint of the plan", plan.encode()),
    }
    for name, value in options.items():
        lines[f"~{name}"] = f"  {name} = {json.dumps(value, ensure_ascii=False)}"
    return lines


def page_text(page: bytes) -> bytes:
    """Return an HTML page without its images."""
    return re.sub(rb"data:image/[a-z]+;base64,[A-Za-z0-9+/=]+", b"", page)


def jsonl(rows: Sequence[dict[str, object]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

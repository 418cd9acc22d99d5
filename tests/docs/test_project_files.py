"""Files about the project itself: Dockerfile, CITATION.cff, CONTRIBUTING.md."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import loaders

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def copied() -> list[str]:
    """What the Dockerfile copies into the image, relative to the root."""
    lines = re.findall(r"^COPY (.+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_image_contains_what_the_build_needs(copied):
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    files = {PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    files |= {"pyproject.toml", "constraints.txt", *(each.removesuffix("*") for each in patterns)}
    assert set(copied) >= files
    assert all((ROOT / source).exists() for source in copied)
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    assert all(any(fnmatch(source, pattern) for pattern in allowed) for source in copied)
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    (version,) = re.findall(r"^FROM python:(3\.\d+)-slim", docker, re.M)
    assert f"Programming Language :: Python :: {version}" in PROJECT["project"]["classifiers"]


@pytest.fixture(scope="module")
def wheel(copied, tmp_path_factory) -> Path:
    """The wheel, built as pip builds it."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    source = tmp_path / "source"
    source.mkdir()
    ignore = shutil.ignore_patterns("__pycache__")
    for name in copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, source)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


def prepare_requirements():
    lines = (ROOT / "requirements-prepare.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_preparing_needs_all_packages_but_two():
    needed = PROJECT["project"]["dependencies"]
    both = ("nvidia-dali", "torch")
    assert prepare_requirements() == [each for each in needed if not each.startswith(both)]


@pytest.mark.slow
def test_the_wheel_prepares_without_dali_and_torch(wheel, make_photos, tmp_path):
    photos = make_photos(tmp_path / "photos", 6)
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for line in prepare_requirements():
        link_package(re.match(r"[\w-]+", line)[0], site)
    code = f"import sys; sys.path.append({str(site)!r}); from dataprep.__main__ import run; run()"

    def run(*arguments):
        # -S: without the site-packages of the tests.
        command = [sys.executable, "-I", "-S", "-c", code, *arguments]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)

    run("convert", "--src", str(photos), "--out", "set", "--resize-shorter", "32", "--workers", "1")
    next((tmp_path / "set").glob("*.idx")).unlink()
    run("repair", "set")
    run("verify", "set", "--decode")
    run("report", "set", "--out", "report.html")


def link_package(name: str, site: Path) -> None:
    """Link the files of an installed package and nothing else of its environment."""
    for file in metadata.distribution(name).files or ():
        top = file.parts[0]
        if top != ".." and not (site / top).exists():
            (site / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (commands,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert b"dataprep = dataprep.__main__:run" in archive.read(commands)
    packages = {name.partition("/")[0] for name in names}
    assert packages == {"dataprep", "loaders", "manifests"}
    files = {path for package in packages for path in (ROOT / package).rglob("*") if path.is_file()}
    assert names == {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}


def test_hadolint_accepts_the_dockerfile():
    here = str(Path(sys.executable).parent)
    hadolint = shutil.which("hadolint", path=here) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("hadolint is not installed")
    command = [hadolint, ROOT / "Dockerfile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    # What the format requires.
    assert set(citation) >= {"cff-version", "message", "title", "authors"}
    project = PROJECT["project"]
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])


def test_scripts_and_files_that_the_pages_at_the_root_name_exist():
    for page, pattern, least in (
        ("CONTRIBUTING.md", r"scripts/[\w-]+", 5),
        ("CONTRIBUTING.md", r"\]\((?!https?:)([^)#]+)", 0),
        ("README.md", r"\]\((?!https?:)([^)#]+)", 0),
    ):
        named = set(re.findall(pattern, (ROOT / page).read_text("utf-8")))
        assert len(named) > least
        assert [name for name in named if not (ROOT / name).exists()] == [], page


def test_every_extra_for_users_is_on_the_page_of_requirements():
    page = (ROOT / "docs" / "requirements.md").read_text("utf-8")
    named = re.findall(r"^\| `(\w+)` \|", page.split("## Extras")[1], re.M)
    assert {*named} == {*PROJECT["project"]["optional-dependencies"]} - {"test", "check", "docs"}


def test_the_readme_is_short_and_names_every_package():
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= 150
    text = readme.split("## Find your way in the source")[1]
    for root in ("dataprep", "loaders"):
        for path in (ROOT / root).glob("*/__init__.py"):
            assert f"`{path.parent.name}/`" in text


def test_the_reference_has_every_sampler():
    page = (ROOT / "docs/reference/samplers.md").read_text()
    named = re.findall(r"^\.\. autoclass:: loaders\.(\w+Sampler)$", page, re.M)
    assert sorted(named) == [name for name in sorted(loaders.__all__) if name.endswith("Sampler")]

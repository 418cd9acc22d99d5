"""YAML files: syntax errors with their line, files that cannot be read, and limits on size."""

from __future__ import annotations

import pytest
from helpers.rows import evaluate, read_rows

from manifests import yaml_file
from manifests.errors import CallError
from manifests.files import CONFIG
from manifests.yaml_file import MAX_VALUES, load_yaml


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text, encoding="utf-8")
        return path

    return write


def assert_load_error(path, message):
    """Check that loading fails with a one-line message that names the file, and return the error."""
    with pytest.raises(CallError, match=message) as caught:
        load_yaml(str(path))
    assert caught.value.file == str(path)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("row", "line"), read_rows(__file__, "invalid yaml"))
def test_invalid_yaml(write, row, line):
    text, message = evaluate(row)
    line = evaluate(line)
    assert assert_load_error(write(text), message).line == line


def test_files_that_cannot_be_read(write, tmp_path):
    assert_load_error(tmp_path / "none.yaml", "the file cannot be read: No such file")
    assert_load_error(tmp_path, "the config file cannot be read: it is a folder")
    assert assert_load_error(write(b"- a\n- \xff\n"), "the file is not encoded in UTF-8").byte == 6
    assert_load_error(write(b"# " + b"x" * CONFIG.max_bytes), f"the limit is {CONFIG.max_bytes:,}")


def test_aliases_cannot_exhaust_memory(write, monkeypatch):
    """Aliased values count at each use, so a short file cannot expand to a huge value, nor to a deep one."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert assert_load_error(write("\n".join(lines)), f"more than {MAX_VALUES} values").line == 6
    lines = ["a0: &a0 {k0: v}"] + [
        f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}], k{i}: v}}" for i in range(1, 40)
    ]
    assert_load_error(write("\n".join(lines)), f"more than {MAX_VALUES} values")
    assert_load_error(write("- " * (MAX_VALUES + 1)), "more than 64 levels")
    assert_load_error(write("[" * 100000), "more than 64 levels")
    monkeypatch.setattr(
        yaml_file, "MAX_VALUES", 5000
    )  # the parser takes a second for 100,000 lines
    assert_load_error(write("- x\n" * 5001), "more than 5000 values")

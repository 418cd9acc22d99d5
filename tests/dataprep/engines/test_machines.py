"""What a run asks of each other machine before it writes: the same folders, and libraries that write the same bytes."""

from __future__ import annotations

import shutil

import PIL
import pytest

from dataprep.canary import canary
from dataprep.engines import LocalEngine
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import SourceOptions, read_source
from manifests.errors import DatasetError


class OtherMachine(LocalEngine):
    """Works in this process, after a change that makes it another machine."""

    is_local = False

    def __init__(self, change):
        super().__init__(1)
        self._change = change

    def check(self, function, argument):
        self._change()
        function(argument)


def hide_out(out, source, patch):
    out.rename(out.with_name("elsewhere"))


def replace_out(out, source, patch):
    hide_out(out, source, patch)
    out.mkdir()


def hide_source(out, source, patch):
    source.rename(source.with_name("elsewhere"))


def change_pillow(out, source, patch):
    patch.setattr(PIL, "__version__", "9.9.9")
    canary.cache_clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (hide_out, "it does not see the output folder"),
        (replace_out, "it has another folder here"),
        (hide_source, "it does not see the source as it was scanned: "),
        (change_pillow, "but this machine has Pillow 9.9.9"),
        (lambda *_: None, ""),
    ],
)
def test_another_machine(image_folder, tmp_path, change, message):
    source, out = tmp_path / "photos", tmp_path / "out"
    shutil.copytree(image_folder, source)
    with pytest.MonkeyPatch.context() as patch:
        engine = OtherMachine(lambda: change(out, source, patch))
        convert = (read_source(str(source), SourceOptions()), str(out), Options())
        if message:
            with pytest.raises(DatasetError, match=message):
                convert_dataset(*convert, engine=engine)
        else:
            convert_dataset(*convert, engine=engine)
    canary.cache_clear()
    assert bool(list(out.glob("train*"))) == (not message)

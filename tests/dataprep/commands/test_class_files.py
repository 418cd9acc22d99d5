"""Files of class names as people have them: read as what they are, or refused."""

from __future__ import annotations

import pytest

from dataprep.labels.class_file import read_classes
from manifests.errors import SourceError

#: Files with the classes cat and hot dog.
SAME = {
    "lines": "cat\nhot dog\n",
    "lines of Windows": "cat\r\nhot dog\r\n",
    "blanks": " cat\t\nhot dog  \n\n",
    "numbers in front": "0 cat\n1 hot dog\n",
    "numbers in front, tab": "0\tcat\n1\thot dog\n",
    "numbers in front, colon": "0: cat\n1: hot dog\n",
    "numbers in front, equals": "0=cat\n1=hot dog\n",
    "another order": "1 hot dog\n0 cat\n",
    "numbers behind": "cat 0\nhot dog 1\n",
    "numbers behind, another order": "hot dog 1\ncat 0\n",
    "CSV": "0,cat\n1,hot dog\n",
    "CSV with a header": "id,name\n0,cat\n1,hot dog\n",
    "CSV with a header, names first": "class_name,class_id\ncat,0\nhot dog,1\n",
    "CSV in quotation marks": 'index,class\n0,"cat"\n1,"hot dog"\n',
    "YAML list": "- cat\n- hot dog\n",
    "YAML of YOLO": "names:\n  0: cat\n  1: hot dog\n",
    "YAML of YOLO, list": "train: images/\nnc: 2\nnames: ['cat', 'hot dog']\n",
    "JSON list": '["cat", "hot dog"]',
    "JSON by number": '{"0": "cat", "1": "hot dog"}',
    "JSON by name": '{\n\t"hot dog": 1,\n\t"cat": 0\n}',
    "JSON member": '{"classes": ["cat", "hot dog"]}',
    "config.json of Hugging Face": '{"model_type": "vit", "id2label": {"0": "cat", "1": "hot dog"}}',
    "Python mapping": "{0: 'cat',\n 1: 'hot dog'}",
}

#: Files that are not class names alone.
REFUSED = {
    "1 cat\n2 dog\n": "the lines have numbers, but not 0 to 1",
    "cat 1\ndog 2\n": "the lines have numbers, but not 0 to 1",
    "0 cat\n5 dog\n": "the lines have numbers, but not 0 to 1",
    "1 dog\n": "the lines have numbers",
    "id,name,group\n0,cat,animal\n1,rose,plant\n": "looks like|more than a number and a name",
    "cat\n1 dog\n2 bird\n": "the lines have numbers",
    "cat\n0 dog\n1 bird\n": "has no number, but all others have one",
    "0,cat,animal\n1,rose,plant\n": "has more than a number and a name",
    "name\ncat\ndog\n": "looks like the names of columns",
    "class,label\ncat,a\ndog,b\n": "looks like the names of columns",
    '{"cat": "dog"}': "numbers of the classes are not 0 to 0",
    '{"1": "cat", "2": "dog"}': "numbers of the classes are not 0 to 1",
    '[["n01", "cat"], ["n02", "dog"]]': "no list of names",
    '{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}': "no list of names",
    "# classes\ncat\ndog\n": "looks like a comment",
    "names:\n  cat: [1\n": "neither JSON nor YAML",
    '["cat", "cat"]': "class 'cat' is listed twice",
    "cat\n\ndog\n": "the line is blank",
    "": "contains no class names",
    "[]": "contains no class names",
}

#: Names with numbers that belong to them.
NAMES = {
    "Boeing 737\nAirbus 320\n": ("Boeing 737", "Airbus 320"),
    "stage 0\nstage 1\nstage 2\n": ("stage 0", "stage 1", "stage 2"),
    "10001\n94110\n": ("10001", "94110"),
    '"0 cat"\n"1 dog"\n': ("0 cat", "1 dog"),
    '"cat "\n" dog"\n': ("cat ", " dog"),
    "tench, Tinca tinca\nhen\n": ("tench, Tinca tinca", "hen"),
    "n01440764 tench\nn01443537 goldfish\n": ("n01440764 tench", "n01443537 goldfish"),
    "no\n007\n": ("no", "007"),
    '["no", "007", "1 dog"]': ("no", "007", "1 dog"),
    "- no\n- 007\n": ("no", "007"),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("form", SAME)
def test_files_of_the_same_classes(form, encoding, tmp_path):
    file = tmp_path / "classes.txt"
    file.write_bytes(SAME[form].encode(encoding))
    assert read_classes(str(file)) == ("cat", "hot dog")


@pytest.mark.parametrize("text", REFUSED)
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(SourceError, match=REFUSED[text]):
        read_classes(str(tmp_path / "classes.txt"))


@pytest.mark.parametrize("text", NAMES)
def test_numbers_that_belong_to_names(text, tmp_path):
    (tmp_path / "classes.txt").write_text(text)
    assert read_classes(str(tmp_path / "classes.txt")) == NAMES[text]

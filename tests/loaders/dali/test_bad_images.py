"""Which errors of DALI become errors of the dataset."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from loaders.dali.bad_images import DecodeMemoryError, decode_failure, translate_error

SPLIT = SimpleNamespace(folder="/data/my set", shards=())

MESSAGE = (
    "Critical error in pipeline:\nError in CPU operator `nvidia.dali.fn.{}`,\nwhich was used in the pipeline"
    ' definition with the following traceback:\n\n  File "x.py", line 1, in <module>\n\nencountered:\n\n{}\n\n'
    "C++ context: [/opt/dali/x.cc:1]\nCurrent pipeline object is no longer valid."
)


def error(operator, reason):
    return RuntimeError(MESSAGE.format(operator, reason))


@pytest.mark.parametrize(
    "other",
    [
        error("decoders.image", "CUDA error: an illegal memory access was encountered"),
        error("resize", "std::bad_alloc"),
        error("decoders.image", "Batch size must not change"),
        error("resize", "anything"),
        ValueError("anything"),
    ],
)
def test_other_errors_stay_as_they_are(other):
    assert translate_error(other, SPLIT) is other


@pytest.mark.parametrize("reason", ["CUDA allocation failed: out of memory", "std::bad_alloc"])
def test_too_little_memory(reason):
    """The same class as DALI's own error, without the C++ source lines."""
    found = translate_error(error("decoders.image", reason), SPLIT)
    assert isinstance(found, DecodeMemoryError)
    assert isinstance(found, RuntimeError)
    assert (
        str(found)
        == f"/data/my set: there is not enough memory to decode a batch (DALI says: {reason})."
        " Hint: reduce batch_size or prefetch, or run `dataprep verify --decode '/data/my set'`"
        " to find images whose header states a wrong size."
    )
    assert decode_failure(error("decoders.image", reason)) is None


def test_a_pipeline_that_has_ended():
    assert isinstance(translate_error(StopIteration(), SPLIT), RuntimeError)

"""Fusion: which operations are fused, which are not, and that fused and unfused operations give the same images.

Random operations draw the same values in both cases, because an operation seeds its own draws. Each
``check_*`` function takes `gpu`, so that tests/gpu can run it on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from itertools import cycle, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import nvidia.dali as dali
import pytest
from helpers.examples import examples
from helpers.graphs import pipeline_options, run_each, run_graph, run_operation, run_stacked
from helpers.pictures import encode
from helpers.pixels import photographs
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from nvidia.dali import fn
from PIL import Image

from loaders.dali.decode_normalize import finish
from loaders.dali.graph import GraphContext, RandomStreams, apply_all
from loaders.dali.pipeline import finished as finish_all
from loaders.transforms.base import ImageSpec, Operation
from loaders.transforms.color import ColorJitter, ConvertColor, PCALighting, RandomGrayscale
from loaders.transforms.combinators import RandomApply
from loaders.transforms.crop_resize import (
    Crop,
    CropAtRatio,
    RandomDownscale,
    RandomResizedCrop,
    Resize,
)
from loaders.transforms.decode_normalize import Decode, Normalize, Rescale, ToFloat, Unpack
from loaders.transforms.erasing import RandomErasing
from loaders.transforms.fuse import CropResize, DecodeCrop, FlipNormalize, PadCrop, ResizeCrop, fuse
from loaders.transforms.geometry import Flip, Pad, PadTo, RandomRightAngle, Rotate
from manifests.errors import CallError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZE = Normalize(MEAN, STD)
SHORT, CROP = Resize(shorter=64), Crop((56, 48))
RANDOM_CROP = RandomResizedCrop((32, 40))
FLIP, UP = Flip(), Flip(0.5, "vertical")


# Rules
# --------------------------------------------------------------------------------------------------

PLAIN = RandomResizedCrop((8, 9), filter="cubic", antialias=False)
NEAREST = CropAtRatio(8, 0.5, "nearest")
UNPACK = Unpack((64, 64))
PAD = Pad(5, 4, 3, 4, fill=(9, 80, 170))
GRAY = (RandomGrayscale(), ConvertColor("GRAY"))

#: Operations, what runs, and how the reasons begin.
FUSED: list[tuple[tuple[Operation, ...], tuple[Operation, ...], list[str]]] = [
    ((Decode(), SHORT, CROP, NORMALIZE), (Decode(), ResizeCrop(SHORT, CROP), NORMALIZE),
     ["Resize + Crop: only the pixels that the crop keeps are computed"]),
    ((Decode("BGR"), RANDOM_CROP, FLIP, NORMALIZE),
     (DecodeCrop(Decode("BGR"), RANDOM_CROP), Resize((32, 40)), FlipNormalize(FLIP, NORMALIZE)),
     ["Decode + RandomResizedCrop: only the cropped region is decoded",
      "Flip + Normalize: one pass over the pixels instead of two"]),
    ((Decode(), PLAIN), (DecodeCrop(Decode(), PLAIN), Resize((8, 9), filter="cubic", antialias=False)), ["Decode"]),
    ((Decode(), NEAREST), (DecodeCrop(Decode(), NEAREST), Resize((8, 8), filter="nearest", antialias=False)),
     ["Decode"]),
    ((UNPACK, RANDOM_CROP, FLIP), (UNPACK, CropResize(RANDOM_CROP), FLIP),
     ["RandomResizedCrop in one pass: stored pixels need no decoding"]),
    *(((*first, PAD, crop), (*first, PadCrop(PAD, crop)), ["Pad + Crop: one pass"]) for first, crop in (
        ((UNPACK,), Crop((64, 60), "random")),
        ((UNPACK,), Crop((72, 72), "random", fits=True)),
        ((Decode(),), Crop((99, 99), "random", fits=True)),  # the sizes were checked
        ((Decode(),), Crop((99, 60), fill=PAD.fill)),  # one color outside of the image
    )),
    # Rules apply to the result of other rules.
    ((Decode(), NORMALIZE, SHORT, CROP), (Decode(), ResizeCrop(SHORT, CROP), NORMALIZE),
     ["Resize before Normalize", "Crop before Normalize", "Resize + Crop"]),
    ((Decode(), *GRAY, RANDOM_CROP, FLIP, NORMALIZE),
     (DecodeCrop(Decode(), RANDOM_CROP), Resize((32, 40)), *GRAY, FlipNormalize(FLIP, NORMALIZE)),
     ["RandomResizedCrop before", "RandomResizedCrop before", "Decode +", "Flip +"]),
    ((Decode(), RANDOM_CROP, Crop((30, 30))),
     (DecodeCrop(Decode(), RANDOM_CROP), ResizeCrop(Resize((32, 40)), Crop((30, 30)))), ["Decode +", "Resize +"]),
    ((SHORT, FLIP, NORMALIZE, CROP), (SHORT, FlipNormalize(FLIP, NORMALIZE), CROP), ["Flip +"]),
    # A resize moves before linear operations, and with the nearest pixel before all of each pixel.
    *(((UP, pixels, resize), (UP, resize, pixels),
       [f"{type(resize).__name__} before {type(pixels).__name__}: {type(pixels).__name__} works on each pixel"])
      for resize in (SHORT, RANDOM_CROP, CropAtRatio(8, 0.5))
      for pixels in (NORMALIZE, Rescale(), RandomGrayscale(), ColorJitter((0.5, 1), saturation=(0, 1)),
                     ConvertColor("YCbCr"))),
    # A flip moves behind colors, into the normalization.
    ((FLIP, *GRAY, ColorJitter(contrast=(0, 2)), PCALighting(), NORMALIZE),
     (*GRAY, ColorJitter(contrast=(0, 2)), PCALighting(), FlipNormalize(FLIP, NORMALIZE)),
     ["RandomGrayscale before Flip: colors", "ConvertColor", "ColorJitter", "PCALighting", "Flip +"]),
    *(case for pixels in (
        PCALighting(), ColorJitter((1, 1.1)), ColorJitter(saturation=(1, 3)), ColorJitter(hue=(-0.1, 0.1)),
        ConvertColor("LAB"), ConvertColor("HSV"), RandomApply((ColorJitter((0.6, 1.4)),)),
    ) for case in (
        ((UP, pixels, SHORT), (UP, pixels, SHORT), []),
        ((UP, pixels, Resize((32, 40), filter="nearest")), (UP, Resize((32, 40), filter="nearest"), pixels),
         ["Resize before"]),
    )),
    # The result would change.
    *((kept, kept, []) for kept in (
        (Decode(),),
        (Decode(), Crop((8, 8))),  # a crop pads with zeros, decoding cannot
        (Decode(), SHORT),
        (Decode(), FLIP, RANDOM_CROP),
        (Decode(), FLIP, SHORT),
        (Decode(), ColorJitter(contrast=(0.5, 1.5)), SHORT),  # depends on the mean of all pixels
        (Decode(), RandomErasing(), SHORT),
        (Decode(), RandomDownscale(), SHORT),
        (Decode(), Rotate((0, 9)), SHORT),
        (Decode(), ConvertColor("HSV"), SHORT),  # hues are angles
        (Decode(), SHORT, Crop((65, 8))),  # pads with zeros
        (Decode(), Resize((64, 8)), Crop((8, 9))),
        (Decode(), NORMALIZE, Crop((8, 8))),  # zeros before and after normalization differ
        (Decode(), SHORT, ConvertColor("LAB"), Crop((65, 65))),
        (Decode(), Pad(4, 4, 4, 4), NORMALIZE),
        (UNPACK, PAD, Crop((73, 60))),  # outside of the padding is another color
        (UNPACK, Pad(4, 4, 4, 4, mode="edge"), Crop((64, 60))),
        (Decode(), Pad(5, 4, 5, 4), Crop((8, 8), fits=True)),  # an image that EXIF turns may not fit
        (Decode(), Pad(4, 4, 4, 4), Crop((9, 8), fits=True)),
        (Decode(), UP, NORMALIZE),
        (Decode(), Flip(0.5, "both"), NORMALIZE),
        (Decode(), FLIP, Rescale()),
        (Decode(), SHORT, FLIP, CROP),
        (Decode(), RandomErasing(), NORMALIZE),
        (UNPACK, RandomResizedCrop((32, 40), sampling="bounded")),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("operations", "expected", "reasons"), FUSED)
def test_rules(
    operations: Sequence[Operation], expected: Sequence[Operation], reasons: list[str]
) -> None:
    found = fuse(operations)
    assert found.operations == expected
    assert len(found.reasons) == len(reasons)
    for reason in reasons:
        assert [each for each in found.reasons if each.startswith(reason)], found.reasons


def test_crops_that_never_pad_move_before_pointwise_operations():
    for resize in (SHORT, Resize((56, 48)), RandomResizedCrop((60, 50)), PadTo((56, 48))):
        found = fuse([FLIP, resize, Rescale(), NORMALIZE, CROP]).operations
        assert isinstance(found[-1], Normalize)
        assert CROP in found or ResizeCrop(resize, CROP) in found


# Any list
# --------------------------------------------------------------------------------------------------


sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))
filters = st.sampled_from(["nearest", "linear", "cubic", "lanczos", "random"])
rounding = st.sampled_from(["down", "nearest"])
sampling = st.sampled_from(["attempts", "bounded"])
places = st.sampled_from(["center", "random"])
operations = st.one_of(
    st.builds(Resize, size=sizes, filter=filters, antialias=st.booleans()),
    st.builds(Resize, shorter=st.integers(1, 40), filter=filters, rounding=rounding),
    st.builds(Crop, sizes, places, st.sampled_from(["down", "even"])),
    st.builds(RandomResizedCrop, sizes, sampling=sampling, antialias=st.booleans()),
    st.builds(CropAtRatio, st.integers(1, 40), st.floats(0.1, 1), filters),
    st.builds(Flip, st.floats(0, 1), st.sampled_from(["horizontal", "vertical", "both"])),
    st.builds(Rotate, st.just((-9, 9))),
    st.just(RandomRightAngle()),
    st.builds(
        Pad,
        *[st.integers(0, 9)] * 4,
        mode=st.sampled_from(["constant", "edge", "reflect", "symmetric"]),
    ),
    st.builds(PadTo, st.none() | sizes, st.integers(1, 9)),
    st.just(RandomDownscale()),
    st.builds(Normalize, st.just(MEAN), st.just(STD), channels=st.sampled_from([3, 4])),
    st.just(Rescale()),
    st.builds(ConvertColor, st.sampled_from(["BGR", "GRAY", "LAB", "HSV"])),
)


def output_spec(sequence: Sequence[Operation]) -> ImageSpec:
    spec = ImageSpec()
    for operation in sequence:
        spec = operation.output(spec)
    return spec


def unfused(sequence: Sequence[Operation]) -> Iterator[Operation]:
    """Undo all fusions except changes of order."""
    rest = list(sequence)
    while rest:
        operation = rest.pop(0)
        if not isinstance(operation, (DecodeCrop, ResizeCrop, PadCrop, FlipNormalize)):
            yield operation
            continue
        yield from (getattr(operation, field.name) for field in fields(operation))
        # The resize of a decoded crop comes next, possibly fused with another crop.
        if isinstance(operation, DecodeCrop):
            rest[:1] = [rest[0].crop] if isinstance(rest[0], ResizeCrop) else []


def scaled(sequence: Sequence[Operation]) -> list[Operation]:
    """Fuse each conversion to floats with a normalization right after it."""
    result: list[Operation] = []
    for operation in sequence:
        current = operation
        while isinstance(current, Normalize) and result and isinstance(result[-1], ToFloat):
            current = replace(current, scale=current.scale * result.pop().scale)
        result.append(current)
    return result


@settings(max_examples=examples(400), deadline=None)
@example([Rescale(), Normalize((0.5,) * 3, (0.5,) * 3)], False)
@given(st.lists(operations, max_size=9), st.booleans())
def test_any_list_keeps_its_output_spec_and_its_operations(sequence, decoded):
    sequence = [Decode(), *sequence] if decoded else sequence
    try:
        spec = output_spec(sequence)
    except CallError:
        assume(False)
    found = fuse(sequence)
    assert output_spec(found.operations) == spec
    again = fuse(found.operations)
    assert again.operations == found.operations
    assert not again.reasons
    # Each operation occurs once. Pointwise operations may move, but keep their order.
    separate = list(unfused(found.operations))
    for pointwise in (True, False):
        kept = [each for each in separate if each.pointwise is pointwise]
        assert scaled(kept) == scaled([each for each in sequence if each.pointwise is pointwise])


# Compared with the unfused form
# --------------------------------------------------------------------------------------


@cache
def encoded() -> tuple[bytes, ...]:
    """Return several kinds of JPEG, one of them with an EXIF orientation, PNG and WebP."""
    exif = Image.Exif()
    exif[0x0112] = 6
    images = []
    for pixels in photographs():
        image = Image.fromarray(pixels)
        images += [
            encode(image, "JPEG", quality=90),
            encode(image, "JPEG", quality=75, subsampling=0, progressive=True),
            encode(image, "JPEG", exif=exif),
            encode(image.convert("L"), "JPEG"),
            encode(image, "PNG"),
            encode(image, "WEBP", quality=90),
        ]
    return tuple(images)


def from_encoded(
    sequence: Sequence[Operation],
    images: Sequence[bytes],
    *,
    seed: int = 0,
    runs: int = 1,
    gpu: bool = False,
) -> list[np.ndarray]:
    """Run operations, the first of which decodes, on encoded images."""
    arrays = [np.frombuffer(each, np.uint8) for each in images]
    pipeline = dali.Pipeline(len(arrays), seed=1, **pipeline_options(gpu))
    context = GraphContext(gpu, len(arrays), RandomStreams(seed), hw_decoder_load=0.65)
    with pipeline:
        encoded = fn.external_source(lambda: arrays, batch=True)
        pipeline.set_outputs(apply_all(sequence, encoded, ImageSpec(), context)[0])
    pipeline.build()
    outputs = (pipeline.run()[0].as_cpu() for _ in range(runs))
    return [np.array(each.at(number)) for each in outputs for number in range(len(arrays))]


@pytest.mark.parametrize("first", [Decode(), DecodeCrop(Decode(), RANDOM_CROP)])
def test_the_gpu_gets_the_pixels_that_the_cpu_decodes(first):
    context = GraphContext(True, 1, RandomStreams(0), gpu_decodes=False)
    with dali.Pipeline(1, **pipeline_options(gpu=False)):
        image, _ = apply_all([first], fn.external_source(name="x"), ImageSpec(), context)
    assert (image.device, image.source._op.device) == ("gpu", "cpu")


#: Lists whose images are compared: a factor of the differences, the largest of a pixel, and the
#: largest mean of an image.
Compared = tuple[Sequence[Operation], float, float, float]


def assert_same_images(lists: Sequence[Compared], gpu: bool) -> None:
    """Compare fused and unfused results of lists that fusion changes."""
    # Copies of an image get draws of their own.
    images, options = photographs() * 3, {"seed": 3, "gpu": gpu}
    for start in range(0, len(lists), 16):  # each pipeline takes memory
        some = lists[start : start + 16]
        fused = [fuse(operations).operations for operations, *_ in some]
        separate = run_each([operations for operations, *_ in some], images, **options)
        combined = run_each(fused, images, **options)
        for (operations, level, most, mean), after, found, expected in zip(
            some, fused, combined, separate, strict=True
        ):
            assert after != tuple(operations)
            for one, other in zip(found, expected, strict=True):
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                difference = np.abs(one.astype(float) - other) * level
                assert difference.max() <= most, (operations, difference.max())
                assert difference.mean() <= mean, (operations, difference.mean())


CROPS = (
    RANDOM_CROP,
    RandomResizedCrop((32, 40), antialias=False, filter="random"),
    RandomResizedCrop((32, 40), (0.9, 1.0), sampling="bounded"),
    RandomResizedCrop((32, 40), sampling="bounded", log_ratio=False),
    CropAtRatio(32, 0.875),
    CropAtRatio(33, 2 / 3, "random"),
)


def check_decoded_crops(gpu: bool = False) -> None:
    images = encoded()
    spaces = [*zip(CROPS, cycle(("RGB", "BGR")), strict=False)]
    for crop, space in (*spaces, (CROPS[0], "BGR"), (CROPS[4], "BGR")):
        sequence = (Decode(space), crop)
        fused = fuse(sequence).operations
        assert isinstance(fused[0], DecodeCrop)
        separate, combined = (
            from_encoded(each, images, runs=2, gpu=gpu) for each in (sequence, fused)
        )
        if not isinstance(crop, CropAtRatio):
            assert not np.array_equal(separate[0], separate[len(images)])
        for number, (each, other) in enumerate(zip(separate, combined, strict=True)):
            if gpu:
                # If a crop starts between two chroma samples, the GPU interpolates them
                # differently.
                assert np.abs(each.astype(float) - other).mean() < 2, (crop, number)
            else:
                assert np.array_equal(each, other), (crop, number)


def check_order_of_channels(gpu: bool = False) -> None:
    for rest in ((), (CropAtRatio(32, 0.875),)):
        red, blue = (
            from_encoded(fuse([Decode(space), *rest]).operations, encoded(), gpu=gpu)
            for space in ("RGB", "BGR")
        )
        for each, other in zip(red, blue, strict=True):
            assert np.array_equal(each, other[..., ::-1])
        assert not np.array_equal(red[0], blue[0])


def resized_crops() -> Iterator[Compared]:
    resizes = (
        SHORT, Resize(shorter=64, antialias=False, rounding="nearest"),
        Resize(shorter=64, filter="lanczos"), Resize(shorter=64, filter="random"),
        Resize((57, 63)), Resize((256, 301), antialias=False),
    )  # fmt: skip
    crops = (CROP, Crop((55, 47), rounding="down"), Crop((55, 48), "random"), Crop((57, 63)))
    for first, resize, crop in product(((), (FLIP,)), resizes, crops):
        yield (*first, resize, crop), 1, 1, 0.01
    # If two pixels are equally near, either may be taken.
    yield (Resize(shorter=64, filter="nearest"), CROP), 1, 255, 0.3


def padded_crops() -> Iterator[Compared]:
    crops = Crop((57, 63), "random"), Crop((56, 48), rounding="down"), Crop((65, 71))
    for pad, crop in product((PAD, Pad(1, 2, 7, 20, fill=(9, 80, 170))), crops):
        yield (Resize((57, 63)), pad, crop), 1, 0, 0
        yield (pad, replace(crop, size=(300, 400), fill=pad.fill)), 1, 0, 0


LARGE = Resize((97, 131))


def resizes_before_pointwise() -> Iterator[Compared]:
    """Yield linear operations, which differ by rounding to uint8, and resizes without interpolation."""
    level_of_std = 0.225 * 255
    every = (
        (NORMALIZE, level_of_std, 0.51, 0.26),
        (Rescale(), 255, 0.51, 0.26),
        (ConvertColor("BGR"), 1, 0, 0),
        (ConvertColor("GRAY"), 1, 1, 0.25),
        (ConvertColor("YCbCr"), 1, 1, 0.25),
        (RandomGrayscale(0.5), 1, 1, 0.25),
        (ColorJitter(brightness=(0.6, 1)), 1, 1, 0.5),
        (ColorJitter(brightness=(0.6, 1), saturation=(0, 1)), 1, 2, 0.5),
    )
    for operation, *limits in every:
        yield (operation, LARGE), *limits
    for resize in (replace(LARGE, antialias=False), RANDOM_CROP, CropAtRatio(64, 0.875)):
        for operation, *limits in (every[0], every[4], every[-1]):
            yield (operation, resize), *limits
    jitter = ColorJitter(hue=(-0.1, 0.1), brightness=(0.6, 1.4))
    for operation in (NORMALIZE, jitter, ConvertColor("LAB")):
        yield (operation, Resize((97, 131), filter="nearest")), 1, 0, 0


def check_images(gpu: bool = False) -> None:
    lists: list[Compared] = [*resized_crops(), *padded_crops(), *resizes_before_pointwise()]
    unscaled = Normalize((1, 2, 3), (4, 5, 6), scale=1.0)
    for normalize in (NORMALIZE, unscaled, Normalize(MEAN, STD, channels=4)):
        lists.append(((FLIP, normalize), 1, 1e-5, 1e-5))
    assert_same_images(lists, gpu)


def check_padding_stays_zero(gpu: bool = False) -> None:
    """Padding of a crop is 0 at the position of the crop in the list, before or after normalization."""
    lists = (
        (SHORT, Crop((70, 48))),
        (NORMALIZE, Crop((40, 30))),
        (Resize((20, 70)), NORMALIZE, Crop((21, 60))),
    )
    images = [each[:30, :40] for each in photographs()]
    fused = [fuse(each).operations for each in lists]
    for separate, combined in zip(
        *(run_each(each, images, gpu=gpu) for each in (lists, fused)), strict=True
    ):
        for each, other in zip(separate, combined, strict=True):
            assert np.array_equal(each, other)
            assert (each[0] == 0).all() or (each[-1] == 0).all()


def check_flip_and_normalize(gpu: bool = False) -> None:
    image = photographs()[2]
    found = run_stacked(fuse([FLIP, NORMALIZE]).operations, image, 60, gpu=gpu)
    expected = (image / 255 - MEAN) / STD
    flipped, same = (np.abs(found - each).max((1, 2, 3)) for each in (expected[:, ::-1], expected))
    assert (np.minimum(flipped, same) < 1e-5).all()
    assert 10 < (flipped < 1e-5).sum() < 50


#: The type of the arrays and the largest error of each type of a batch.
DTYPES = {
    "float32": (np.float32, 1e-5), "float16": (np.float16, 3e-3), "bfloat16": (np.float32, 1e-5),
    "uint8": (np.uint8, 0),
}  # fmt: skip


def check_finish(gpu: bool = False) -> None:
    """Normalization together with layout and type, and images without a final normalization."""
    image = photographs()[2]
    normalized = (image / 255 - MEAN) / STD
    with_fourth = np.concatenate([normalized, np.zeros_like(normalized[..., :1])], axis=-1)
    four = Normalize(MEAN, STD, channels=4)
    rows = (
        (image, NORMALIZE, normalized),
        (image, four, with_fourth),
        (image, FlipNormalize(Flip(0), NORMALIZE), normalized),
        (image, FlipNormalize(Flip(1), NORMALIZE), normalized[:, ::-1]),
        (image, FlipNormalize(Flip(1), four), with_fourth[:, ::-1]),
        # Images that are already normalized, for example because they were mixed.
        (with_fourth.astype(np.float32), None, with_fourth),
        (image, None, image),
    )
    for (pixels, last, expected), dtype, layout in product(rows, DTYPES, ("NHWC", "NCHW")):
        kind, limit = DTYPES[dtype]
        if kind == np.uint8 and expected is not image:
            continue
        spec = ImageSpec(is_uint8=pixels.dtype == np.uint8)
        step = partial(finish, last=last, spec=spec, dtype=dtype, layout=layout)

        def make(node: Any, context: GraphContext, step: Any = step) -> list[Any]:
            return [step(node, context=context)]

        ((found,),) = run_graph(make, [pixels], gpu=gpu)
        turned = expected if layout == "NHWC" else expected.transpose(2, 0, 1)
        assert (found.dtype, found.shape) == (kind, turned.shape)
        assert np.abs(found - turned.astype(float)).max() <= limit, (last, dtype, layout)


def check_erasing_in_the_layout_of_the_batch(gpu: bool = False) -> None:
    images = [photographs()[2]] * 6
    spec = ImageSpec(size=images[0].shape[:2])
    operations = (NORMALIZE, RandomErasing(probability=0.8, fill=(0.3, -1.7, 2.2)))
    expected = np.stack(run_operation(operations, images, spec=spec, gpu=gpu))
    floats = [*DTYPES.items()][:3]
    for (dtype, (kind, limit)), layout in product(floats, ("NHWC", "NCHW")):
        options: Any = SimpleNamespace(dtype=dtype, layout=layout)

        def make(node: Any, context: GraphContext, options: Any = options) -> Any:
            return [finish_all(operations, node, spec, context, options)[0]]

        (found,) = run_graph(make, images, gpu=gpu)
        axes = (0, 1, 2, 3) if layout == "NHWC" else (0, 3, 1, 2)
        assert found[0].dtype == kind
        assert np.abs(np.stack(found) - expected.transpose(axes)).max() < limit


CHECKS: tuple[Callable[..., None], ...] = tuple(
    each for name, each in list(globals().items()) if name.startswith("check_")
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_cpu(check):
    check()

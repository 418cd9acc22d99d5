"""What ``loaders bench`` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from loaders.bench.measure import (
    Candidate,
    Method,
    Rate,
    Watch,
    find_machine,
    measure_loader,
    measure_model,
    measure_stages,
)
from loaders.bench.model import (
    Model,
    check_comparable,
    load_model,
    measure_decode_jpeg,
    measure_torchvision,
)
from loaders.bench.remedies import disturbance_candidates, find_candidates
from loaders.bench.results import (
    ModelRates,
    Remedy,
    Results,
    Subject,
    is_enough,
    limiting_stage,
    loader_rate,
)
from loaders.dataset.split import OpenSplit
from loaders.dataset.tables import SampleTables
from loaders.options import BuildRequest
from loaders.ranks import usable_cores
from loaders.resolve import open_anywhere, resolve
from loaders.spec import LoaderSpec
from loaders.transforms.argument import parse_transforms
from manifests.errors import CallError

#: Called with a description of what is measured next.
Announce = Callable[[str], None]


def bench(
    dataset: str,
    *,
    transforms: str,
    model: str | None,
    torchvision: bool,
    method: Method,
    announce: Announce,
    tuning: str | None = None,
    **options: Any,
) -> Results:
    """Measure a loader stage by stage, a model, and changes of what limits them.

    Args:
        dataset: folder or URL of the dataset.
        transforms: name of a preset, or a YAML file.
        model: what ``--model`` names. `None` measures no model.
        torchvision: whether to compare with torchvision.
        method: how long and how often each rate is measured.
        announce: called before each measurement.
        tuning: file of `loaders tune`.
        options: the other arguments of `make_request`.

    Raises:
        CallError: an option is wrong, or a library is missing.
        DamagedError: the dataset is damaged.

    """
    if torchvision:
        check_comparable(transforms, dataset)
    request = replace(make_request(dataset, transforms=transforms, **options), tuning=tuning)
    spec = resolve(request)
    spec.close()
    device = spec.options.device
    cores = usable_cores(spec.options.ranks, 1)
    subject = Subject(
        dataset=spec.split.folder,
        split=spec.split.name,
        samples=spec.split.samples,
        transforms=transforms,
        batch_size=spec.options.batch_size,
        options=_speed_options(spec),
        raw=spec.recipe.raw_size is not None,
    )
    # A wrong model is an error before the first measurement.
    stepper = load_model(model, spec) if model else None
    watch = Watch(spec.split, device)
    announce("reading, decoding, augmentation, delivery")
    stages = measure_stages(partial(resolve, request), method)
    rates = compared = decode_jpeg = None
    if stepper is not None:
        rates = _measure_model(request, stepper, loader_rate(stages), method, announce)
    candidates = find_candidates(request, limiting_stage(stages), watch.cached_before)
    remedies = _measure_remedies(candidates, method, announce)
    conditions = watch.conditions()
    if torchvision:
        announce("torchvision")
        compared = measure_torchvision(spec, transforms, cores, method)
        decode_jpeg = measure_decode_jpeg(spec, transforms, method)
    return Results(
        subject,
        find_machine(device, cores),
        method,
        conditions,
        stages,
        remedies,
        model=rates,
        torchvision=compared,
        decode_jpeg=decode_jpeg,
    )


def _measure_model(
    request: BuildRequest, model: Model, delivered: Rate, method: Method, announce: Announce
) -> ModelRates:
    make_spec = partial(resolve, request)
    announce(f"{model.name} alone")
    alone = measure_model(make_spec, model, method)
    announce(f"{model.name} fed by the loader")
    fed = measure_loader(make_spec, method, model)
    remedies: tuple[Remedy, ...] = ()
    # The loader alone is fast enough, so it disturbs the model that runs beside it.
    if is_enough(delivered, alone) and not is_enough(fed, alone):
        remedies = _measure_remedies(disturbance_candidates(request), method, announce, model)
    return ModelRates(model.name, alone, fed, remedies)


def _measure_remedies(
    candidates: Iterable[Candidate], method: Method, announce: Announce, model: Model | None = None
) -> tuple[Remedy, ...]:
    remedies = []
    for candidate in candidates:
        announce(candidate.text)
        rate = measure_loader(candidate.make_spec, method, model)
        remedies.append(Remedy(candidate.text, candidate.action, rate))
    return tuple(remedies)


def _speed_options(spec: LoaderSpec) -> dict[str, Any]:
    """Return the arguments of `loaders.build` that affect the speed."""
    options = spec.options
    shown: dict[str, Any] = {
        "device": str(options.device),
        "num_threads": options.num_threads,
        "prefetch": options.prefetch,
        "pipelines": options.pipelines,
    }
    if spec.may_choose_decoder:
        shown["decoder"] = options.decoder
    if options.decoder == "gpu":
        shown["hw_decoder_load"] = options.hw_decoder_load
    return {**shown, "dtype": options.dtype, "shuffle": options.shuffle}


#: Default batch size. A smaller split is one batch.
_BATCH_SIZE = 256

#: With fewer images if they are large: bytes of a batch of whole images, of which several are in
#: memory at a time.
_BATCH_BYTES = 1 << 30


def make_request(
    dataset: str,
    *,
    transforms: str,
    split: str,
    batch_size: int | None,
    device: Any,
    cache: str | None = None,
) -> BuildRequest:
    """Return a request with the defaults of `loaders.build`, for one process.

    Raises:
        CallError: an option is wrong, or the dataset does not exist.
        DamagedError: the manifest or a table is damaged.
        StorageError: the object store or the cache cannot be used.

    """
    opened = open_anywhere(dataset, split, cache, None)
    fields = ("image", *opened.manifest.labels.fields[:1])
    if batch_size is None and not _config_has_batch_size(transforms, split):
        batch_size = _default_batch_size(opened)
    return BuildRequest(
        dataset=dataset,
        split=split,
        batch_size=batch_size,
        transforms=transforms,
        device=device,
        rank=0,
        world_size=1,
        last_batch="drop",
        fields=fields,
        cache=cache,
    )


def _default_batch_size(split: OpenSplit) -> int:
    tables = SampleTables(split)
    sizes = tables.image_sizes() if split.samples else None
    tables.close()
    size = _BATCH_SIZE
    # A size may be unknown, and is 0 then.
    if sizes is not None and sizes.mean_pixels > 0:
        fitting = int(_BATCH_BYTES / (3 * sizes.mean_pixels))
        size = min(size, 1 << max(0, fitting.bit_length() - 1))  # a power of two
    return max(1, min(size, split.samples))


def _config_has_batch_size(transforms: str, split: str) -> bool:
    """Return whether a PaddleClas config gives a batch size, which its sampler may need."""
    try:
        return parse_transforms(transforms, split=split).batch_size is not None
    except CallError:  # `resolve` raises it again, if it is one
        return False

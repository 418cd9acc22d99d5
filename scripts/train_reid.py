"""Train re-identification on a prepared dataset, on one device or several, and resume a run that stopped.

    python scripts/train_reid.py Market-1501-tfrecord --checkpoint run.pt
    torchrun --nproc-per-node 2 scripts/train_reid.py Market-1501-tfrecord --checkpoint run.pt
    --resume

The label is the identity, as `dataprep convert` writes it for Market-1501 or with --label-column. A
batch has P identities with K samples each, from several cameras if the sample tables have a column
`camera`. Each process uses the hardest pairs of its own batch. The evaluation searches the gallery
split for each sample of the query split by the rules of Market-1501 (Zheng et al., ICCV 2015).
Without these splits, the val split is both query and gallery.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
import train
from torch import distributed, nn
from torch.nn import functional
from train import autocast, init_distributed, log, positive_float, positive_int, synchronize_buffers

import loaders
from manifests.store import read_manifest
from manifests.tables import read_table

#: Similarities that are sorted at once, which limits the memory of the evaluation to approximately
#: 1 GiB.
MAX_SIMILARITIES = 1 << 24


class Network(nn.Module):
    """A backbone, a batch norm and a classifier: BNNeck of "Bag of Tricks", https://arxiv.org/abs/1903.07071."""

    def __init__(self, backbone: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.backbone, self.neck = backbone, nn.BatchNorm1d(width)
        self.neck.bias.requires_grad_(False)
        self.classifier = nn.Linear(width, classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, images: torch.Tensor) -> Any:
        """Return features and class scores; in evaluation mode, features after the batch norm.

        All float32 [B, ...].
        """
        features = self.backbone(images).float()
        normalized = self.neck(features)
        return (features, self.classifier(normalized).float()) if self.training else normalized


def make_network(name: str, classes: int) -> Network:
    if name == "tiny":
        return Network(nn.Sequential(*train.tiny_backbone()), train.TINY_WIDTH, classes)
    from torchvision import models

    backbone = getattr(models, name)()
    width, backbone.fc = backbone.fc.in_features, nn.Identity()
    # Without a stride, the last stage has twice the resolution, as in the paper.
    block = backbone.layer4[0]
    strided = block.conv2 if name == "resnet50" else block.conv1
    strided.stride = block.downsample[0].stride = (1, 1)
    return Network(backbone, width, classes)


def batch_hard(features: torch.Tensor, labels: torch.Tensor, margin: float | None) -> torch.Tensor:
    """Return the triplet loss of the hardest pairs, https://arxiv.org/abs/1703.07737.

    The hardest pairs of a sample are the farthest one of its identity and the nearest one of
    another.

    Args:
        features: float32 [B, width].
        labels: int64 [B]; each label appears more than once, and not all are equal.
        margin: margin between the two distances. `None` means the soft margin.

    """
    squares = features.square().sum(1)
    squared = squares[:, None] + squares - 2 * features @ features.T
    distance = squared.clamp(min=1e-12).sqrt()  # The square root has no gradient at 0.
    same = labels[:, None] == labels
    farthest = distance.masked_fill(~same, -math.inf).amax(1)
    excess = farthest - distance.masked_fill(same, math.inf).amin(1)
    if margin is None:
        return functional.softplus(excess).mean()
    return functional.relu(excess + margin).mean()


class Embeddings(NamedTuple):
    """Features of samples, float32 [N, width] of length 1, with labels and camera numbers, int64 [N]."""

    features: torch.Tensor
    labels: torch.Tensor
    cameras: torch.Tensor


def score(
    query: Embeddings, gallery: Embeddings, max_similarities: int = MAX_SIMILARITIES
) -> torch.Tensor:
    """Rank the gallery by similarity to each query, without samples of the query's identity from its own camera.

    A query whose identity is not in the rest of the gallery is not counted. Distractors have an
    identity that no query has.

    Returns:
        Number of queries whose first result is correct, sum of the average precisions (each is the
        mean of the precision at the correct results), and number of counted queries: float64 [3].

    """
    totals = query.features.new_zeros(3, dtype=torch.float64)
    ranks = torch.arange(1, len(gallery.labels) + 1, device=totals.device)
    chunk = max(1, max_similarities // len(ranks))
    for features, labels, cameras in zip(*(part.split(chunk) for part in query), strict=True):
        same = labels[:, None] == gallery.labels
        excluded = same & (cameras[:, None] == gallery.cameras)
        similarity = (features @ gallery.features.T).masked_fill(excluded, -math.inf)
        order = similarity.argsort(dim=1, descending=True, stable=True)
        correct = (same & ~excluded).gather(1, order)
        correct = correct[correct.any(1)]
        precisions = (correct.cumsum(1) / ranks * correct).sum(1, dtype=torch.float64)
        mean_precision = (precisions / correct.sum(1)).sum()
        queries = totals.new_tensor(len(correct))
        totals += torch.stack([correct[:, 0].sum(), mean_precision, queries])
    return totals


@torch.no_grad()
def embed(
    model: nn.Module,
    batches: loaders.Loader[Any],
    device: torch.device,
    camera_numbers: dict[Any, int],
) -> Embeddings:
    """Return the embeddings of a split, gathered from all ranks.

    New cameras are added to `camera_numbers`.
    """
    features: list[torch.Tensor] = []
    labels: list[int] = []
    cameras: list[Any] = []
    for images, identities, camera_values in batches:
        if len(identities):  # The last batch may be empty on some ranks.
            with autocast(device):
                features.append(functional.normalize(model(images.permute(0, 3, 1, 2))).cpu())
            labels += identities.tolist()
            cameras += camera_values.tolist() if torch.is_tensor(camera_values) else camera_values
    parts: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(parts, (features, labels, cameras))
    features, labels, cameras = ([each for part in parts for each in part[n]] for n in range(3))
    codes = [camera_numbers.setdefault(camera, len(camera_numbers)) for camera in cameras]
    return Embeddings(
        torch.cat(features).to(device),
        torch.tensor(labels).to(device),
        torch.tensor(codes).to(device),
    )


def evaluate(
    model: nn.Module, splits: list[loaders.Loader[Any]], device: torch.device
) -> tuple[float, float, int]:
    """Return rank-1 accuracy, mAP and the number of counted queries, over all ranks.

    Args:
        model: returns features in evaluation mode.
        splits: query and gallery; or one split, which is both.
        device: device of the features.

    """
    synchronize_buffers(model)
    model.eval()
    camera_numbers: dict[Any, int] = {}
    embeddings = [embed(model, batches, device, camera_numbers) for batches in splits]
    model.train()
    query, gallery = embeddings[0], embeddings[-1]
    part = slice(distributed.get_rank(), None, distributed.get_world_size())
    totals = score(Embeddings(*(each[part] for each in query)), gallery)
    distributed.all_reduce(totals)
    correct_first, precision_sum, queries = totals.tolist()
    if not queries:
        raise SystemExit(
            "no query has a sample of its identity from another camera in the gallery, so there is"
            " nothing to score"
        )
    return correct_first / queries, precision_sum / queries, int(queries)


#: What reading a file raises that is no checkpoint of this script.
DAMAGED = (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, UnpicklingError)


@dataclass
class Training(train.Training):
    """The training of train.py with another loss."""

    margin: float | None = None

    def resume(self, path: Path) -> None:
        """Load a checkpoint, as in train.py; exit with a message if it cannot be used."""
        try:
            super().resume(path)
        except loaders.DatasetError:
            raise
        except DAMAGED as error:
            raise SystemExit(
                f"--checkpoint {path} is damaged, or belongs to another script, --model or number"
                f" of processes ({str(error).partition(chr(10))[0]})"
            ) from None

    def loss(
        self, ddp_model: nn.Module, images: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch: the sum of the classification loss and the triplet loss."""
        with autocast(self.device):
            features, scores = ddp_model(images)
        loss = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        return loss + batch_hard(features, labels, self.margin)


def build(
    args: argparse.Namespace, sampler: loaders.samplers.Sampler | None = None
) -> tuple[loaders.Loader[Any], list[loaders.Loader[Any]]]:
    """Return the loader of the train split, by default with a `PKSampler`, and the loaders of query and gallery, or of val."""
    manifest = read_manifest(args.dataset)
    split = manifest.split("train")
    has_camera = False
    if split:
        table = read_table(Path(args.dataset) / split.shards[0].table.name)
        has_camera = "camera" in table.column_names
    shared = {"device": args.device, "seed": args.seed}
    # Tensor cores are fastest with channels last in memory.
    shared |= {"dtype": "float16" if args.device == "gpu" else "float32", "layout": "NHWC"}
    sampler = sampler or loaders.PKSampler(
        args.identities, args.samples, across="camera" if has_camera else None
    )
    batch_size = args.identities * args.samples
    batches = loaders.build(
        args.dataset, batch_size=batch_size, transforms="reid-train", sampler=sampler, **shared
    )
    if not batches.classes:
        raise SystemExit(
            f"{args.dataset} does not name its classes. Hint: run `dataprep index` with --classes."
        )
    # Without cameras, the key replaces the camera, so each sample excludes only itself.
    shared |= {"batch_size": 256, "transforms": "reid-eval"}
    shared |= {"fields": ("image", "label", "camera" if has_camera else "key")}
    names = ("query", "gallery") if manifest.split("query") else ("val",)
    return batches, [loaders.build(args.dataset, split=name, **shared) for name in names]


def parse_args() -> argparse.Namespace:
    parser = train.make_parser(__doc__, ["resnet50", "resnet18", "tiny"], epochs=120, lr=3.5e-4)
    for name, default, text in (
        ("--identities", 16, "identities in a batch of each process (P)"),
        ("--samples", 4, "samples of each identity in a batch (K)"),
        ("--evaluate-every", 10, "epochs between evaluations; the last one is always evaluated"),
    ):
        parser.add_argument(name, type=positive_int, default=default, help=text)
    margin = "margin of the triplet loss; None is the soft margin"
    parser.add_argument("--margin", type=positive_float, help=margin)
    return parser.parse_args()


def check_args(args: argparse.Namespace) -> None:
    """Check arguments that would otherwise fail only after loading has started."""
    if min(args.identities, args.samples) < 2:
        raise SystemExit(
            "--identities and --samples must be at least 2, because the loss compares pairs of"
            " samples"
        )
    if not args.checkpoint.parent.is_dir():
        raise SystemExit(
            f"--checkpoint {args.checkpoint}: the folder does not exist. Hint: create it."
        )


def run(
    args: argparse.Namespace,
    batches: loaders.Loader[Any],
    splits: list[loaders.Loader[Any]],
    device: torch.device,
) -> tuple[float, float, int]:
    """Train, and return the last rank-1 accuracy, mAP and number of counted queries."""
    torch.manual_seed(args.seed)
    model = make_network(args.model, len(batches.classes))
    model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=5e-4)
    steps = max(3, args.epochs * len(batches))  # OneCycleLR needs at least 3.
    schedule = {"total_steps": steps, "pct_start": max(0.1, 2 / steps), "cycle_momentum": False}
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, **schedule)
    training = Training(batches, model, optimizer, scheduler, device, margin=args.margin)
    if args.resume and args.checkpoint.exists():
        training.resume(args.checkpoint)
    ddp_model = nn.parallel.DistributedDataParallel(model)

    scores = (0.0, 0.0, 0)
    # If the run stopped between the last batch of an epoch and its evaluation, evaluate first.
    for epoch in range(max(0, training.step - 1) // len(batches), args.epochs):
        if training.step < (epoch + 1) * len(batches):
            training.train_epoch(ddp_model, args)
        if (epoch + 1) % args.evaluate_every == 0 or epoch + 1 == args.epochs:
            scores = rank1, mean_precision, queries = evaluate(model, splits, device)
            log(f"epoch {epoch}: rank-1 {rank1:.2%}, mAP {mean_precision:.2%}, {queries} queries")
    return scores


def main() -> None:
    args = parse_args()
    check_args(args)
    train.check_machine(args)
    device = init_distributed(args.device == "gpu")
    batches, splits = build(args)
    run(args, batches, splits, device)
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except loaders.DatasetError as error:
        raise SystemExit(str(error)) from None

"""Train re-identification on a prepared dataset, on one device or several, and go on where a stopped run was.

    python scripts/train_reid.py Market-1501-tfrecord --checkpoint run.pt
    torchrun --nproc-per-node 2 scripts/train_reid.py Market-1501-tfrecord --checkpoint run.pt --resume

The label is the identity, as `dataprep convert` has it of Market-1501 or with --label-column. A batch holds P
identities x K samples, of several cameras where the sample tables have a column `camera`; each process takes the
hardest pairs among its own. At the end each sample of query is sought in gallery by the rules of Market-1501 (Zheng et
al., ICCV 2015); where these splits are missing, each of val among the others.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
import train
from torch import distributed, nn
from torch.nn import functional
from train import count, join, tell

import loaders
from loaders.dataset.split import open_split
from manifests.errors import DatasetError
from manifests.store import read_table

#: Similarities that are sorted at a time, which bounds the memory of an evaluation to about 1 GiB.
SIMILARITIES = 1 << 24


class Network(nn.Module):
    """A body, a batch norm and a classifier: BNNeck of "A bag of tricks", https://arxiv.org/abs/1903.07071."""

    def __init__(self, body: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.body, self.neck = body, nn.BatchNorm1d(width)
        self.neck.bias.requires_grad_(requires_grad=False)
        self.classifier = nn.Linear(width, classes, bias=False)
        nn.init.normal_(self.classifier.weight, std=0.001)

    def forward(self, images: torch.Tensor) -> Any:
        """Return features from before the norm and scores; in evaluation features from behind it; float32 [B, ...]."""
        features = self.body(images).float()
        normed = self.neck(features)
        return (features, self.classifier(normed).float()) if self.training else normed


def make_network(name: str, classes: int) -> Network:
    if name == "tiny":
        stem = (nn.Conv2d(3, 8, 8, stride=8), nn.BatchNorm2d(8), nn.ReLU())
        return Network(nn.Sequential(*stem, nn.AdaptiveAvgPool2d(4), nn.Flatten()), 8 * 4 * 4, classes)
    try:
        from torchvision.models import resnet50
    except ImportError:
        raise SystemExit(
            f"--model {name} is torchvision's, which is not installed; --model tiny needs it not"
        ) from None
    body = resnet50()
    width, body.fc = body.fc.in_features, nn.Identity()
    # The last stage sees twice the detail, as in the paper.
    body.layer4[0].conv2.stride = body.layer4[0].downsample[0].stride = (1, 1)
    return Network(body, width, classes)


def batch_hard(features: torch.Tensor, labels: torch.Tensor, margin: float | None) -> torch.Tensor:
    """Return the triplet loss of each sample's farthest positive and nearest negative, https://arxiv.org/abs/1703.07737.

    Args:
        features: float32 [B, width].
        labels: int64 [B], each more than once, and not all the same.
        margin: between the two distances; none means a soft one.

    """
    squares = features.square().sum(1)
    squared = squares[:, None] + squares - 2 * features @ features.T
    distance = squared.clamp(min=1e-12).sqrt()  # at 0 a root has no gradient
    same = labels[:, None] == labels
    excess = distance.masked_fill(~same, -math.inf).amax(1) - distance.masked_fill(same, math.inf).amin(1)
    return (functional.softplus(excess) if margin is None else functional.relu(excess + margin)).mean()


class Found(NamedTuple):
    """Features of samples, float32 [N, width] of length 1, with labels and the cameras' numbers, int64 [N]."""

    features: torch.Tensor
    labels: torch.Tensor
    cameras: torch.Tensor


def score(query: Found, gallery: Found, similarities: int = SIMILARITIES) -> torch.Tensor:
    """Seek each query in the gallery, the most similar first, without those of its identity and its camera.

    A query that has nothing left to be found does not count. Distractors are of an identity that no query has.

    Returns:
        How many queries found their identity first, the sum of all average precisions (each the mean of the precision
        where a sample of the identity is found), and how many queries count: float64 [3].

    """
    totals = query.features.new_zeros(3, dtype=torch.float64)
    places = torch.arange(1, len(gallery.labels) + 1, device=totals.device)
    at_once = max(1, similarities // len(places))
    for features, labels, cameras in zip(*(part.split(at_once) for part in query), strict=True):
        same = labels[:, None] == gallery.labels
        left_out = same & (cameras[:, None] == gallery.cameras)
        similarity = (features @ gallery.features.T).masked_fill(left_out, -math.inf)
        order = similarity.argsort(dim=1, descending=True, stable=True)
        right = (same & ~left_out).gather(1, order)
        right = right[right.any(1)]
        precision = (right.cumsum(1) / places * right).sum(1, dtype=torch.float64) / right.sum(1)
        totals += torch.stack([right[:, 0].sum(), precision.sum(), totals.new_tensor(len(right))])
    return totals


@torch.no_grad()
def embed(model: nn.Module, batches: Any, device: torch.device, numbers: dict[Any, int]) -> Found:
    """Return what all ranks find of a split, each sample once; `numbers` has a number for each camera's name."""
    features, labels, cameras = [], [], []
    for images, identities, names in batches:
        if len(identities):  # the last batch of some ranks may be empty
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                features.append(functional.normalize(model(images.permute(0, 3, 1, 2))).cpu())
            labels += identities.tolist()
            cameras += names.tolist() if torch.is_tensor(names) else names
    parts: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(parts, (features, labels, cameras))
    features, labels, cameras = ([each for part in parts for each in part[kind]] for kind in range(3))
    codes = [numbers.setdefault(name, len(numbers)) for name in cameras]
    return Found(torch.cat(features).to(device), torch.tensor(labels).to(device), torch.tensor(codes).to(device))


def evaluate(model: nn.Module, splits: list[Any], device: torch.device) -> tuple[float, float, int]:
    """Return rank-1, mAP and how many queries count, over all ranks; of one split each sample is a query."""
    for buffer in model.buffers():
        distributed.broadcast(buffer, 0)  # each rank has had means and variances of its own
    model.eval()
    numbers: dict[Any, int] = {}
    found = [embed(model, batches, device, numbers) for batches in splits]
    model.train()
    query, gallery = found[0], found[-1]
    part = slice(distributed.get_rank(), None, distributed.get_world_size())
    totals = score(Found(*(each[part] for each in query)), gallery)
    distributed.all_reduce(totals)
    first, precision, queries = totals.tolist()
    if not queries:
        raise SystemExit("no query has another sample of its identity, by another camera, to be found")
    return first / queries, precision / queries, int(queries)


class Training(train.Training):
    """As in train.py, with another loss."""

    def resume(self, path: Path) -> None:
        """Become what was saved."""
        try:
            super().resume(path)
        except (OSError, EOFError, LookupError, RuntimeError, TypeError, ValueError, UnpicklingError) as error:
            said = str(error).partition("\n")[0]
            raise SystemExit(
                f"--checkpoint {path} is damaged, or of another script, --model or number of processes ({said})"
            ) from None

    def learn(self, learner: nn.Module, call: argparse.Namespace) -> None:
        """Learn from what is left of an epoch."""
        begun, first = time.perf_counter(), self.step
        for images, labels in self.train:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                features, scores = learner(images.permute(0, 3, 1, 2))
            loss = functional.cross_entropy(scores, labels, label_smoothing=0.1)
            loss = loss + batch_hard(features, labels, call.margin)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % call.log_every == 0:
                seen = (self.step - first) * len(labels) * distributed.get_world_size()
                rate = seen / (time.perf_counter() - begun)
                tell(f"step {self.step}: loss {loss.item():.4f}, {rate:,.0f} img/s")
                begun, first = time.perf_counter(), self.step
            if self.step % call.save_every == 0 or self.step == call.epochs * len(self.train):
                self.save(call.checkpoint)


def build(call: argparse.Namespace) -> tuple[Any, list[Any]]:
    """Return the loader of train, and those of query and gallery, or that of val."""
    opened = open_split(call.dataset, "train")
    has_camera = "camera" in read_table(opened.path(opened.shards[0].table)).column_names
    shared = {"device": call.device, "seed": call.seed}
    # Channels last in memory, as tensor cores want them.
    shared |= {"dtype": "float16" if call.device == "gpu" else "float32", "layout": "NHWC"}
    sampler = loaders.PKSampler(call.identities, call.samples, across="camera" if has_camera else None)
    batch_size = call.identities * call.samples
    batches = loaders.build(call.dataset, batch_size=batch_size, transforms="reid-train", sampler=sampler, **shared)
    if not batches.classes:
        raise SystemExit(f"{call.dataset} states no classes; say them with `dataprep index --classes`")
    # Without cameras each sample is by one of its own, so that only itself is left out.
    shared |= {"batch_size": 256, "transforms": "reid-eval"}
    shared |= {"fields": ("image", "label", "camera" if has_camera else "key")}
    names = ("query", "gallery") if opened.manifest.split("query") else ("val",)
    return batches, [loaders.build(call.dataset, split=name, **shared) for name in names]


def positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise argparse.ArgumentTypeError(f"must be more than 0, got {text}")
    return float(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="folder that dataprep made, with splits train, query, gallery; or train, val")
    parser.add_argument("--model", default="resnet50", choices=["resnet50", "tiny"])
    parser.add_argument("--epochs", type=count, default=120)
    parser.add_argument("--identities", type=count, default=16, help="P, in a batch of each process")
    parser.add_argument("--samples", type=count, default=4, help="K, of each identity")
    parser.add_argument("--margin", type=positive, help="of the triplet loss; soft unless said")
    parser.add_argument("--lr", type=positive, default=3.5e-4, help="highest learning rate")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--save-every", type=count, default=1000, help="steps")
    parser.add_argument("--log-every", type=count, default=50, help="steps")
    parser.add_argument("--evaluate-every", type=count, default=10, help="epochs; the last is evaluated, too")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint, if it is there")
    return parser.parse_args()


def check(call: argparse.Namespace) -> None:
    """Refuse what would fail only later."""
    if min(call.identities, call.samples) < 2:
        raise SystemExit("--identities and --samples must be at least 2, so that there are pairs to compare")
    if call.device == "gpu" and not torch.cuda.is_available():
        raise SystemExit("--device gpu, and there is none here; say --device cpu")
    if not call.checkpoint.parent.is_dir():
        raise SystemExit(f"--checkpoint {call.checkpoint}: there is no such folder; make it")


def main() -> None:
    call = parse()
    check(call)
    device = join(call.device == "gpu")
    batches, splits = build(call)

    torch.manual_seed(call.seed)
    model = make_network(call.model, len(batches.classes))
    model = model.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), weight_decay=5e-4)
    steps = max(3, call.epochs * len(batches))  # fewer cannot go up and down
    course = {"total_steps": steps, "pct_start": max(0.1, 2 / steps), "cycle_momentum": False}
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, call.lr, **course)
    training = Training(batches, model, optimizer, scheduler, device)
    if call.resume and call.checkpoint.exists():
        training.resume(call.checkpoint)
    learner = nn.parallel.DistributedDataParallel(model)

    # A run that was stopped between an epoch's last batch and its evaluation evaluates first.
    for number in range(max(0, training.step - 1) // len(batches), call.epochs):
        if training.step < (number + 1) * len(batches):
            training.learn(learner, call)
        if (number + 1) % call.evaluate_every == 0 or number + 1 == call.epochs:
            first, precision, queries = evaluate(model, splits, device)
            tell(f"epoch {number}: rank-1 {first:.2%}, mAP {precision:.2%}, {queries} queries")
    distributed.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except DatasetError as error:
        raise SystemExit(str(error)) from None

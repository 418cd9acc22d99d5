"""Train a small vision transformer on images of their own shapes, packed into rows of one length.

    python scripts/train_naflex.py ILSVRC2012-tfrecord --checkpoint run.pt
    python scripts/train_naflex.py ILSVRC2012-tfrecord --checkpoint run.pt --resume

Each image keeps its aspect ratio and gets a budget of 128, 256 or 576 patches (NaFlex; NaViT,
https://arxiv.org/abs/2307.06304). A row has several images, and attention stays within each. With
--row-tokens 0, a row has one image, and all images of a batch have one budget.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import loaders

#: Budgets in patches, and the side of a patch in pixels.
BUDGETS, PATCH = (128, 256, 576), 16


class Block(nn.Module):
    """Attention and a perceptron, each on normalized values and added to the input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: torch.Tensor, attends: torch.Tensor) -> torch.Tensor:
        """Return tokens [R, T, width]; `attends`, bool [R, 1, T, T], says which see which."""
        rows, length, width = tokens.shape
        qkv = self.qkv(self.norm1(tokens)).view(rows, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, attends)
        tokens = tokens + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        changed: torch.Tensor = tokens + self.mlp(self.norm2(tokens))
        return changed


class NaFlexViT(nn.Module):
    """A transformer whose positions are a row and a column, so that a grid may have any shape."""

    def __init__(self, classes: int, longest: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH * 3, width)
        # A grid of one row has as many columns as patches.
        self.row, self.column = nn.Embedding(longest, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(
        self, patches: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor, images: int
    ) -> torch.Tensor:
        """Return the logits of each image, [images, classes].

        Args:
            patches: [R, T, values of a patch].
            positions: row and column of each patch in its image, int64 [R, T, 2].
            segments: number of the image of each patch, int64 [R, T]; -1 for padding.
            images: number of images.

        """
        tokens = self.embed(patches) + self.row(positions[..., 0]) + self.column(positions[..., 1])
        # Block-diagonal: patches of one image see each other, and padding sees padding.
        attends = segments[:, None, :, None] == segments[:, None, None, :]
        for block in self.blocks:
            tokens = block(tokens, attends)
        real = segments >= 0
        sums = tokens.new_zeros(images, tokens.shape[2])
        sums.index_add_(0, segments[real], self.norm(tokens[real]))
        counts = torch.bincount(segments[real], minlength=images)
        logits: torch.Tensor = self.head(sums / counts[:, None])
        return logits


def make_batches(args: argparse.Namespace) -> loaders.Loader[Any]:
    """Return the loader of the training split."""
    patchify = {"patch": PATCH, "max_tokens": args.budgets, "position": "tokens"}
    fields = ["image", "label", "grid", "mask"]
    if args.row_tokens:
        patchify["row_tokens"] = args.row_tokens
        fields.append("segments")
    transforms = ["RandomHorizontalFlip", {"NormalizeImage": {}}, {"Patchify": patchify}]
    return loaders.build(
        args.dataset,
        transforms=transforms,
        fields=fields,
        batch_size=args.batch_size,
        device=args.device,
        dtype="float16" if args.device == "gpu" else "float32",
        sampler=loaders.ShuffledSampler(),
        last_batch="drop",
        seed=args.seed,
    )


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="folder of a prepared dataset")
    parser.add_argument("--row-tokens", type=int, default=1024, help="patches of a row")
    parser.add_argument("--budgets", type=int, nargs="+", default=BUDGETS, metavar="N")
    parser.add_argument("--batch-size", type=int, default=256, help="images of a step")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--device", choices=["gpu", "cpu"], default="gpu" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("naflex.pt"))
    parser.add_argument("--resume", action="store_true", help="continue from --checkpoint")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if args.device == "gpu" else "cpu")
    batches = make_batches(args)
    longest = args.row_tokens or max(args.budgets)
    model = NaFlexViT(len(batches.classes), longest, args.width, args.depth, args.width // 64)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr)
    step = 0
    if args.resume and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.load_state_dict(saved["batches"])
        step = saved["step"]
    for epoch in range(batches.epoch, args.epochs):
        for patches, labels, positions, mask, *packed in batches:
            # Without rows of several images, row i has image i.
            numbers = torch.arange(len(labels), device=device)[:, None]
            segments = packed[0] if packed else torch.where(mask, numbers, -1)
            with torch.autocast(device.type, torch.bfloat16, enabled=args.device == "gpu"):
                logits = model(patches, positions, segments, len(labels))
                loss = functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            filled = mask.float().mean().item()
            packing = f"{len(patches)} rows of {mask.shape[1]}, {filled:.1%} filled"
            print(f"step {step}: loss {loss.item():.4f}, {packing}", flush=True)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        temporary = args.checkpoint.with_name(args.checkpoint.name + ".new")
        torch.save({**state, "batches": batches.state_dict()}, temporary)
        os.replace(temporary, args.checkpoint)
        print(f"epoch {epoch}: saved", flush=True)


if __name__ == "__main__":
    main()

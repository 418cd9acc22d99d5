"""Program that saves the batches of an epoch: all of them, or one of two parts that different processes read."""

import sys
from pathlib import Path

import torch

import loaders

part, folder, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
loader = loaders.build(
    folder, batch_size=4, transforms="imagenet-train", device="cpu", num_threads=2
)
if part == "second":
    loader.load_state_dict(torch.load(out / "state.pt"))
batches = []
for images, labels in loader:
    batches.append((images.clone(), labels))
    if part == "first" and len(batches) == 2:
        torch.save(loader.state_dict(), out / "state.pt")
        break
torch.save(batches, out / f"{part}.pt")
loader.close()

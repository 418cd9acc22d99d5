"""Program for torchrun: every rank reads its part of a dataset, and rank 0 prints all labels as JSON."""

import json
import sys

import torch
import torch.distributed as dist

import loaders

GPU = "gpu" in sys.argv[2:]
dist.init_process_group("nccl" if GPU else "gloo")
rank = dist.get_rank()
if GPU:
    torch.cuda.set_device(rank)
loader = loaders.build(
    sys.argv[1], split="train", batch_size=3, transforms="imagenet-eval", shuffle=False,
    device="gpu" if GPU else "cpu", last_batch="partial",
)  # fmt: skip
labels, batches, devices = [], 0, set()
for images, batch_labels in loader:
    labels += batch_labels.tolist()
    devices.add(str(images.device))
    batches += 1
gathered: list[tuple[list[int], int, list[str]]] = [([], 0, [])] * dist.get_world_size()
dist.all_gather_object(gathered, (labels, batches, sorted(devices)))
if rank == 0:
    result: dict[str, object] = {
        "world": len(gathered),
        "labels": [label for part in gathered for label in part[0]],
        "batches": [part[1] for part in gathered],
        "devices": [part[2] for part in gathered],
    }
    print(json.dumps(result), flush=True)
loader.close()
dist.destroy_process_group()

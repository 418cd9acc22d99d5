"""Program for torchrun: every rank reads its part of a dataset on its GPU, and rank 0 prints all labels as JSON."""

import json
import sys
from itertools import chain

import torch
import torch.distributed as dist

import loaders

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
loader = loaders.build(
    sys.argv[1], split="train", batch_size=3, transforms="imagenet-eval", shuffle=False,
    device="gpu", last_batch="partial",
)  # fmt: skip
labels, batches, devices = [], 0, set()
for images, batch_labels in loader:
    labels += batch_labels.tolist()
    devices.add(str(images.device))
    batches += 1
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, (labels, batches, sorted(devices)))
if rank == 0:
    every_label, counts, names = zip(*gathered, strict=True)
    result = {"world": len(gathered), "labels": [*chain(*every_label)], "batches": counts}
    print(json.dumps({**result, "devices": names}), flush=True)
loader.close()
dist.destroy_process_group()

"""Reading: `loaders.build` beside torchvision's ImageFolder with a DataLoader, and beside a DALI pipeline by hand.

    python scripts/bench/load.py --images PHOTOS/ --count 25600 --work /dev/shm/bench-load
    python scripts/bench/load.py --images PHOTOS/ --count 4096 --device cpu --torch-workers 2
    python scripts/bench/load.py --images PHOTOS/ --count 51200 --resize-shorter 256
    python scripts/bench/load.py --images PHOTOS/ --count 51200 --store raw
    python scripts/bench/load.py --images PHOTOS/ --memory
    python scripts/bench/load.py --start

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count and converted with `dataprep convert`;
torchvision reads them as an ImageFolder, the other two as shards, all from memory. Every side does the work of
imagenet-train and ends with float16 tensors on the GPU, or float32 ones where there is none. A measurement takes whole
epochs, `--epochs` of them and as many again until a second is over, without a pause. It begins after the side has
given away what it made ahead while another was measured, so that nothing counts that was made outside of the time, and
nobody pays for a cold start. torchvision's number of workers and size of batches are the best of those that are tried.

Then the loader is taken apart: reading alone, with decoding, with the augmentation, and with torch's tensors.
With --memory: GPU memory after each of three epochs. With --start: how long `loaders.build` takes for a million
samples.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import compare
import torch
from load_costs import tell_memory, tell_start
from load_data import prepare
from load_sides import OURS, SIDES, compare_sides, measure
from load_stages import taken_apart, tell_bottleneck

from loaders.transforms.presets import PRESETS


def main() -> None:
    call = parse()
    tell_machine(call)
    if call.start:
        tell_start(call)
    elif call.memory:
        tell_memory(call)
    else:
        src, dataset = prepare(call)
        compare_sides(src, dataset, call)
        if not call.only or "apart" in call.only:
            print(f"\n{OURS} taken apart")
            tell_bottleneck(measure(taken_apart(dataset, call), call))


def tell_machine(call: argparse.Namespace) -> None:
    from importlib.metadata import version

    packages = ["nvidia-dali-cuda120", "torch", *(["torchvision"] if compare.installed("torchvision") else [])]
    gpu = torch.cuda.get_device_name() if call.device == "gpu" else "no GPU"
    cores = len(os.sched_getaffinity(0))
    print(f"{gpu}; {cores} cores usable; {', '.join(f'{name} {version(name)}' for name in packages)}")


def preset_or_file(text: str) -> str:
    if text not in PRESETS and not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a YAML file nor one of {', '.join(PRESETS)}")
    return text


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of photographs")
    parser.add_argument("--count", type=int, default=25_600, help="images of an epoch; whole batches are kept")
    parser.add_argument("--epochs", type=int, default=1, help="epochs that each measurement takes at least")
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("/dev/shm/bench-load"),
        help="folder in memory; what an earlier call made there is used again",
    )
    parser.add_argument("--fmt", choices=["tfrecord", "webdataset"], default="tfrecord")
    parser.add_argument("--resize-shorter", type=int, help="prepare the images so; torchvision reads them as they are")
    parser.add_argument("--store", choices=["encoded", "raw"], default="encoded", help="prepare the images so")
    parser.add_argument(
        "--order",
        choices=["stored", "sampled"],
        help=f"how {OURS} reads: by DALI's reader or a ShuffledSampler; unsaid, as it chooses",
    )
    parser.add_argument("--preset", type=preset_or_file, default="imagenet-train", help="its name, or a YAML file")
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, help="of both that run DALI; none means loaders.build's own choice")
    parser.add_argument(
        "--torch-workers", type=int, nargs="+", default=[len(os.sched_getaffinity(0))], help="numbers to try"
    )
    parser.add_argument("--torch-batch-sizes", type=int, nargs="+", help="sizes to try; none means --batch-size")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only the sides whose names contain one of these; `apart` for stages")
    parser.add_argument("--memory", action="store_true", help="tell the GPU memory of three epochs, and nothing else")
    parser.add_argument("--start", action="store_true", help="tell the time to start, and nothing else")
    call = parser.parse_args()
    if call.device == "auto":
        call.device = "gpu" if torch.cuda.is_available() else "cpu"
    if call.memory and call.device == "cpu":
        parser.error("--memory needs a GPU")
    if call.images is None and not call.start:
        parser.error("--images is needed")
    for word in call.only or ():
        if word != "apart" and not any(word in name for name in SIDES):
            parser.error(f"--only {word}: no side's name contains it; there are {', '.join(SIDES)}, and apart")
    if call.count < call.batch_size:
        parser.error(f"--count {call.count} is less than a batch of {call.batch_size}")
    call.batches = call.count // call.batch_size * call.epochs
    call.count = call.count // call.batch_size * call.batch_size
    call.torch_batch_sizes = call.torch_batch_sizes or [call.batch_size]
    return call


if __name__ == "__main__":
    main()

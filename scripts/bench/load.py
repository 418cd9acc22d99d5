"""Loading: `loaders.build` against torchvision's ImageFolder with a DataLoader, and against a DALI pipeline by hand.

    python scripts/bench/load.py --images PHOTOS/ --count 25600 --work /dev/shm/bench-load
    python scripts/bench/load.py --images PHOTOS/ --count 4096 --device cpu --torch-workers 2
    python scripts/bench/load.py --images PHOTOS/ --count 51200 --resize-shorter 256
    python scripts/bench/load.py --images PHOTOS/ --count 51200 --store raw
    python scripts/bench/load.py --images PHOTOS/ --memory
    python scripts/bench/load.py --start

PHOTOS is a folder of JPEGs, at any depth, which are repeated up to the count and converted with
`dataprep convert`. torchvision reads them as an ImageFolder, the other two as shards, all from
memory. Every side does the work of imagenet-train and returns float16 tensors on the GPU, or
float32 tensors on the CPU. A measurement takes whole epochs, `--epochs` of them and more until
`--min-seconds` have passed, without a pause between them. It starts after the side has returned the
batches that it prefetched while another side was measured, so no measurement benefits from earlier
work or includes a cold start. torchvision uses the fastest of the given numbers of workers and
batch sizes.

Then the stages of the pipeline are measured: reading, with decoding, with augmentation, and
`loaders.build` with torch tensors. With --memory: GPU memory after each of three epochs. With
--start: how long `loaders.build` takes for a million samples.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from load_costs import report_memory, report_start
from load_data import prepare
from load_sides import OURS, SIDES, compare_sides
from load_stages import report_stages
from report import Report, make_parser

from loaders.transforms.argument import PRESETS


def main() -> None:
    args = parse()
    with Report("load", args.json) as report:
        if args.start:
            report_start(report, args)
        elif args.memory:
            report_memory(report, args)
        else:
            src, dataset = prepare(args)
            compare_sides(report, src, dataset, args)
            if not args.only or "apart" in args.only:
                report_stages(report, dataset, args)


def preset_or_file(text: str) -> str:
    if text not in PRESETS and not os.path.isfile(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a YAML file nor one of {', '.join(PRESETS)}"
        )
    return text


def parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--images", type=Path, help="folder of photographs")
    parser.add_argument(
        "--count", type=int, default=25_600, help="images in an epoch, rounded down to full batches"
    )
    parser.add_argument(
        "--epochs", type=int, default=1, help="minimum number of epochs in a measurement"
    )
    parser.add_argument(
        "--min-seconds", type=float, default=1.0, help="minimum duration of a measurement"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("/dev/shm/bench-load"),
        help="folder in memory; datasets in it are reused",
    )
    parser.add_argument("--fmt", choices=["tfrecord", "webdataset"], default="tfrecord")
    parser.add_argument(
        "--resize-shorter",
        type=int,
        help="convert with this option; torchvision reads the originals",
    )
    parser.add_argument(
        "--store", choices=["encoded", "raw"], default="encoded", help="convert with this option"
    )
    parser.add_argument(
        "--order",
        choices=["stored", "sampled"],
        help=(
            f"make {OURS} use DALI's reader (stored) or a ShuffledSampler (sampled); default: as"
            f" {OURS} chooses"
        ),
    )
    parser.add_argument(
        "--preset",
        type=preset_or_file,
        default="imagenet-train",
        help="name of a preset or YAML file",
    )
    parser.add_argument("--device", choices=["auto", "gpu", "cpu"], default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument(
        "--threads",
        type=int,
        help="CPU threads of the sides that run DALI; default: as loaders.build chooses",
    )
    parser.add_argument(
        "--torch-workers",
        type=int,
        nargs="+",
        default=[len(os.sched_getaffinity(0))],
        help="numbers of DataLoader workers to try",
    )
    parser.add_argument(
        "--torch-batch-sizes",
        type=int,
        nargs="+",
        help="batch sizes of torchvision to try; default: --batch-size",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--only",
        nargs="+",
        help=(
            "measure only the sides whose names contain one of these words; `apart` measures the"
            " stages"
        ),
    )
    parser.add_argument(
        "--memory", action="store_true", help="measure only the GPU memory of three epochs"
    )
    parser.add_argument("--start", action="store_true", help="measure only the time to start")
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "gpu" if torch.cuda.is_available() else "cpu"
    if args.memory and args.device == "cpu":
        parser.error("--memory needs a GPU, but the device is the CPU")
    if args.images is None and not args.start:
        parser.error("--images is missing. Hint: pass a folder of photographs.")
    for word in args.only or ():
        if word != "apart" and not any(word in name for name in SIDES):
            parser.error(
                f"--only {word} matches no side. The sides are {', '.join(SIDES)}; `apart` measures"
                " the stages."
            )
    if args.count < args.batch_size:
        parser.error(f"--count {args.count} is less than --batch-size {args.batch_size}")
    args.batches = args.count // args.batch_size * args.epochs
    args.count = args.count // args.batch_size * args.batch_size
    args.torch_batch_sizes = args.torch_batch_sizes or [args.batch_size]
    return args


if __name__ == "__main__":
    main()

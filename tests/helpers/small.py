"""The presets of ImageNet with images of 32 pixels, for tests of everything that does not depend on the size."""

from loaders.transforms.argument import PRESETS

TRAIN = [{"RandomResizedCrop": {"size": 32}}, *PRESETS["imagenet-train"][0][1:]]
EVAL = [{"Resize": {"size": 36}}, {"CenterCrop": {"size": 32}}, *PRESETS["imagenet-eval"][0][2:]]

"""Limits on what a list of transforms may ask for, so that no config takes unbounded memory or time.

Every limit is far above what published recipes use. An error that states a limit is raised before
anything runs.
"""

from __future__ import annotations

#: Transforms in a list, including those inside `RandomApply` and similar transforms, and how deep
#: they may be nested.
MAX_TRANSFORMS = 100
MAX_NESTING = 8

#: Transforms in `RandomOrder`. The graph computes each of them in each place.
MAX_ORDERED = 6

#: Views of each image.
MAX_VIEWS = 32

#: Characters of a number that is written as text, such as ``"1.0/255.0"``, and of a policy such as
#: ``rand-m9-n2``.
MAX_NUMBER_LENGTH = 100
MAX_POLICY_LENGTH = 200

#: Longest side of an image in pixels. A batch of larger images exhausts memory, and the error does
#: not explain why.
MAX_SIDE = 2**15

#: Pixels of an image of known size. uint8 RGB images of this size take 768 MiB each.
MAX_PIXELS = 2**28

#: Values of one field of a transform that contains several, for example the steps that a policy
#: draws from.
MAX_VALUES = 1000

#: Steps that a policy runs one after another. Each is a part of the graph.
MAX_STEPS = 20

#: Chains of an AugMix policy, and steps of a chain.
MAX_CHAINS = 8
MAX_CHAIN_STEPS = 8

#: Draws of the rectangle of `RandomErasing`. The memory grows with it.
MAX_ATTEMPTS = 1000

#: Squares of `Cutout`.
MAX_HOLES = 1000

#: Sides of the kernels of a Gaussian blur and of a motion blur, in pixels, and the motion's angle
#: in degrees.
MAX_GAUSSIAN = 999
MAX_MOTION = 24
MAX_MOTION_ANGLE = 90

#: Standard deviation of the Gaussian of an elastic transform, in pixels.
MAX_SIGMA = 100

#: Angles that the grid of `GridMask` is drawn from, in degrees.
MAX_ANGLES = 360

#: Classes of mixed labels. Every label of a batch is a row of this length.
MAX_CLASSES = 1_000_000

#: Samples in a batch of one rank, and in an epoch of one rank, that a config file may set.
MAX_BATCH_SIZE = 2**16
MAX_EPOCH_SAMPLES = 2**25

"""Names of the values of masks that their datasets define but do not contain."""

from __future__ import annotations

#: Cityscapes, ``*_labelIds.png`` (``cityscapesscripts/helpers/labels.py``).
CITYSCAPES_IDS = (
    *(
        "unlabeled",
        "ego vehicle",
        "rectification border",
        "out of roi",
        "static",
        "dynamic",
        "ground",
        "road",
    ),
    *(
        "sidewalk",
        "parking",
        "rail track",
        "building",
        "wall",
        "fence",
        "guard rail",
        "bridge",
        "tunnel",
        "pole",
    ),
    *(
        "polegroup",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
        "sky",
        "person",
        "rider",
        "car",
        "truck",
    ),
    *("bus", "caravan", "trailer", "train", "motorcycle", "bicycle"),
)

#: Cityscapes, ``*_labelTrainIds.png``. The value 255 means none of them.
CITYSCAPES_TRAIN_IDS = (
    *(
        "road",
        "sidewalk",
        "building",
        "wall",
        "fence",
        "pole",
        "traffic light",
        "traffic sign",
        "vegetation",
    ),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)

#: Pascal VOC, ``SegmentationClass/``. The value 255 means the border of an object.
VOC = (
    *(
        "background",
        "aeroplane",
        "bicycle",
        "bird",
        "boat",
        "bottle",
        "bus",
        "car",
        "cat",
        "chair",
        "cow",
    ),
    *(
        "diningtable",
        "dog",
        "horse",
        "motorbike",
        "person",
        "pottedplant",
        "sheep",
        "sofa",
        "train",
        "tvmonitor",
    ),
)

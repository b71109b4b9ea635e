"""The classes of the sample world: names, colours and values."""

from mrcfa.data.labels import labels

WORLD = labels(
    (
        "road",
        "pavement",
        "grass",
        "building",
        "wall",
        "sky",
        "tree",
        "car",
        "bus",
        "person",
        "pole",
        "sign",
    ),
    (
        (128, 64, 128),
        (244, 35, 232),
        (152, 251, 152),
        (70, 70, 70),
        (190, 153, 153),
        (70, 130, 180),
        (107, 142, 35),
        (0, 0, 142),
        (0, 140, 160),
        (220, 20, 60),
        (250, 170, 30),
        (220, 220, 0),
    ),
)
ROAD, PAVEMENT, GRASS, BUILDING, WALL, SKY, TREE, CAR, BUS, PERSON, POLE, SIGN = range(12)

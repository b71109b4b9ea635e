"""The classes of the sample world: names, colours and values."""

from mrcfa.data.labels import Colour, labels

_COLOURS: dict[str, Colour] = {
    "road": (128, 64, 128),
    "pavement": (244, 35, 232),
    "grass": (152, 251, 152),
    "building": (70, 70, 70),
    "wall": (190, 153, 153),
    "sky": (70, 130, 180),
    "tree": (107, 142, 35),
    "car": (0, 0, 142),
    "bus": (0, 140, 160),
    "person": (220, 20, 60),
    "pole": (250, 170, 30),
    "sign": (220, 220, 0),
}
WORLD = labels(list(_COLOURS), list(_COLOURS.values()))
ROAD, PAVEMENT, GRASS, BUILDING, WALL, SKY, TREE, CAR, BUS, PERSON, POLE, SIGN = range(12)

"""Names and colours of the classes, in the order of mask values."""

from mrcfa.config import Dataset

Colour = tuple[int, int, int]

VSPW = """
wall ceiling door stair ladder escalator Playground_slide handrail_or_fence window rail goal
pillar pole floor ground grass sand athletic_field road path crosswalk building house bridge
tower windmill well_or_well_lid other_construction sky mountain stone wood ice snowfield
grandstand sea river lake waterfall water billboard_or_Bulletin_Board sculpture pipeline flag
parasol_or_umbrella cushion_or_carpet tent roadblock car bus truck bicycle motorcycle
wheeled_machine ship_or_boat raft airplane tyre traffic_light lamp person cat dog horse cattle
other_animal tree flower other_plant toy ball_net backboard skateboard bat ball
cupboard_or_showcase_or_storage_rack box traveling_case_or_trolley_case basket bag_or_package
trash_can cage plate tub_or_bowl_or_pot bottle_or_cup barrel fishbowl bed pillow table_or_desk
chair_or_seat bench sofa shelf bathtub gun commode roaster other_machine refrigerator
washing_machine Microwave_oven fan curtain textiles clothes painting_or_poster mirror
flower_pot_or_vase clock book tool blackboard tissue screen_or_television computer printer
Mobile_phone keyboard other_electronic_product fruit food instrument train
""".split()

CITYSCAPES: dict[str, Colour] = {
    "road": (128, 64, 128),
    "sidewalk": (244, 35, 232),
    "building": (70, 70, 70),
    "wall": (102, 102, 156),
    "fence": (190, 153, 153),
    "pole": (153, 153, 153),
    "traffic light": (250, 170, 30),
    "traffic sign": (220, 220, 0),
    "vegetation": (107, 142, 35),
    "terrain": (152, 251, 152),
    "sky": (70, 130, 180),
    "person": (220, 20, 60),
    "rider": (255, 0, 0),
    "car": (0, 0, 142),
    "truck": (0, 0, 70),
    "bus": (0, 60, 100),
    "train": (0, 80, 100),
    "motorcycle": (0, 0, 230),
    "bicycle": (119, 11, 32),
}


def class_names(dataset: Dataset, classes: int) -> tuple[str, ...]:
    """The dataset's names, or numbered ones for a model with another number of classes."""
    names = VSPW if dataset is Dataset.VSPW else list(CITYSCAPES)
    return tuple(names) if len(names) == classes else tuple(f"class {i}" for i in range(classes))


def palette(dataset: Dataset, classes: int) -> tuple[Colour, ...]:
    """Cityscapes' own colours; elsewhere the colour map of PASCAL VOC, which never repeats."""
    if dataset is Dataset.CITYSCAPES and classes == len(CITYSCAPES):
        return tuple(CITYSCAPES.values())
    return tuple(_voc_colour(index + 1) for index in range(classes))


def _voc_colour(index: int) -> Colour:
    """Spreads the bits of the index over the high bits of red, green and blue."""
    channels = [0, 0, 0]
    for bit in range(8):
        for channel in range(3):
            channels[channel] |= (index >> (3 * bit + channel) & 1) << (7 - bit) if bit < 3 else 0
    return channels[0], channels[1], channels[2]

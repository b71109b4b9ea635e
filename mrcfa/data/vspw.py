"""VSPW (Miao et al., CVPR 2021): its classes, its preset and its folders."""

from pathlib import Path

from mrcfa.data.dataset import Dataset, LabelledVideos, Preset
from mrcfa.data.folders import clips_in_folders
from mrcfa.data.labels import IGNORED, labels


def _videos(root: Path, split: str, reach: int) -> LabelledVideos:
    """The videos of a split, all frames of which are annotated."""
    clips = clips_in_folders(root, split)
    return LabelledVideos(VSPW.labels, root, split, clips, dense=True)


_NAMES = (
    "wall", "ceiling", "door", "stair", "ladder", "escalator", "Playground_slide",
    "handrail_or_fence", "window", "rail", "goal", "pillar", "pole", "floor", "ground", "grass",
    "sand", "athletic_field", "road", "path", "crosswalk", "building", "house", "bridge", "tower",
    "windmill", "well_or_well_lid", "other_construction", "sky", "mountain", "stone", "wood", "ice",
    "snowfield", "grandstand", "sea", "river", "lake", "waterfall", "water",
    "billboard_or_Bulletin_Board", "sculpture", "pipeline", "flag", "parasol_or_umbrella",
    "cushion_or_carpet", "tent", "roadblock", "car", "bus", "truck", "bicycle", "motorcycle",
    "wheeled_machine", "ship_or_boat", "raft", "airplane", "tyre", "traffic_light", "lamp",
    "person", "cat", "dog", "horse", "cattle", "other_animal", "tree", "flower", "other_plant",
    "toy", "ball_net", "backboard", "skateboard", "bat", "ball",
    "cupboard_or_showcase_or_storage_rack", "box", "traveling_case_or_trolley_case", "basket",
    "bag_or_package", "trash_can", "cage", "plate", "tub_or_bowl_or_pot", "bottle_or_cup", "barrel",
    "fishbowl", "bed", "pillow", "table_or_desk", "chair_or_seat", "bench", "sofa", "shelf",
    "bathtub", "gun", "commode", "roaster", "other_machine", "refrigerator", "washing_machine",
    "Microwave_oven", "fan", "curtain", "textiles", "clothes", "painting_or_poster", "mirror",
    "flower_pot_or_vase", "clock", "book", "tool", "blackboard", "tissue", "screen_or_television",
    "computer", "printer", "Mobile_phone", "keyboard", "other_electronic_product", "fruit", "food",
    "instrument", "train",
)  # fmt: skip

VSPW = Dataset(
    name="vspw",
    # In mask files 0 means no ground truth, and v means class v − 1.
    labels=labels(_NAMES, values=range(1, len(_NAMES) + 1), ignore=(0, IGNORED)),
    preset=Preset(size=(480, 864), references=(9, 6, 3), scales=3, key_stride=32),
    is_at=lambda root: (root / "data").is_dir(),
    videos=_videos,
    layout="data/<video>/origin and mask, <split>.txt",
)

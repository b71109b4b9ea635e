"""A manifest as a later mrcfa of the same format might write it: with fields that nobody knows."""

import json
from pathlib import Path
from typing import Any

MAPS = {"files", "variants", "tools", "costs", "forms", "milliseconds"}
"""Fields that are maps, whose keys are names and not fields."""


def add_unknown_fields(manifest: Path) -> int:
    """Into every object at every level; answers how many there are now."""
    content = json.dumps(_extended(json.loads(manifest.read_text())))
    manifest.unlink()  # a copied bundle may share the file
    manifest.write_text(content)
    return content.count("of_tomorrow")


def _extended(content: Any, is_map: bool = False) -> Any:
    if isinstance(content, list):
        return [_extended(each) for each in content]
    if not isinstance(content, dict):
        return content
    known = {key: _extended(value, key in MAPS) for key, value in content.items()}
    return known if is_map else {**known, "of_tomorrow": {"deep": [1, None]}}

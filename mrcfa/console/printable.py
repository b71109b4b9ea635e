"""Text from elsewhere, such as names of classes and files, as a terminal may show it."""

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""What moves a terminal's cursor, ends a line, turns the direction of writing or is half a
character, as the name of a file may have it."""


def printable(text: str) -> str:
    """The text with such characters as escapes: `\\x1b[31m` for a terminal's red."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNPRINTABLE.sub(escape, text)

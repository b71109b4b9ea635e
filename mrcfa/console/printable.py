"""`printable`: text from untrusted files and names, made safe for a terminal."""

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
"""Characters that move a terminal's cursor, end a line or change the direction of writing, and
single surrogates, which names of files may contain."""


def printable(text: str) -> str:
    """The text with unprintable characters escaped, such as `\\x1b[31m` for a terminal's red."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _UNPRINTABLE.sub(escape, text)

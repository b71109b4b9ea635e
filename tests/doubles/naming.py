"""Patterns for `match=`: an error names things, in any order and in any words."""

import re


def naming(*things: object) -> str:
    """Matches a text that has each thing, but not as a part of a longer word or number."""
    return "(?s)^" + "".join(
        rf"(?=.*(?<![\w-])(?<!\d\.){re.escape(str(thing))}(?!\w|\.\d))" for thing in things
    )


def names(text: str, *things: object) -> bool:
    """The same of a text that was printed, such as standard error."""
    return re.match(naming(*things), text) is not None

"""Camera and server addresses with their secrets removed, safe to show."""

import re

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]+:/+\S+", re.IGNORECASE)  # a Path folds two slashes
_SECRETS = [
    (r"(?<=:/)(/*)[^/?#]*@", r"\1***@"),  # user and password
    (r"(?<=:/)(/*)[^/?#@:]*:(?!\d*(?:[/?#]|$)).*@", r"\1***@"),  # a password with a slash in it
    (r"\?.*?(?=[;:,.'\")]*$)", "?***"),
    (r"((?:user(?:name)?|pass(?:word|wd)?|pwd|token|key|secret|auth)=)[^&/]+", r"\1***"),
]


def without_secrets(text: str) -> str:
    """The text with users, passwords and queries of its addresses replaced by `***`."""
    return _ADDRESS.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    address = found[0]
    for secret, replacement in _SECRETS:
        address = re.sub(secret, replacement, address, flags=re.IGNORECASE)
    return address

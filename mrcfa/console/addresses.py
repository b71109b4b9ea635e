"""Addresses of cameras and servers as they may be shown: without the secrets in them."""

import re

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]+:/+\S+", re.IGNORECASE)  # a Path folds two slashes
_SECRETS = [
    (r"(?<=:/)(/*)[^/?#]*@", r"\1***@"),  # user and password
    (r"(?<=:/)(/*)[^/?#@:]*:(?!\d*(?:[/?#]|$)).*@", r"\1***@"),  # a password with a slash in it
    (r"\?.*?(?=[;:,.'\")]*$)", "?***"),
    (r"((?:user(?:name)?|pass(?:word|wd)?|pwd|token|key|secret|auth)=)[^&/]+", r"\1***"),
]


def without_secrets(text: str) -> str:
    """The text with `***` for users, passwords and queries of the addresses in it."""
    return _ADDRESS.sub(_cleaned, text)


def _cleaned(found: re.Match[str]) -> str:
    address = found[0]
    for secret, shown in _SECRETS:
        address = re.sub(secret, shown, address, flags=re.IGNORECASE)
    return address

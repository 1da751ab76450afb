"""Addresses that only programs on this machine reach."""

from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_here(url: str) -> bool:
    """Whether a URL names this machine. False for text that is no URL; raises ValueError for a
    malformed one (`http://[`)."""
    return urlsplit(url).hostname in LOOPBACK

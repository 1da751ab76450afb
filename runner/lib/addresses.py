"""Addresses that only programs on this machine reach."""

from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_here(url: str) -> bool:
    """Whether a URL is one of this machine itself. Raises ValueError for what is no URL."""
    return urlsplit(url).hostname in LOOPBACK

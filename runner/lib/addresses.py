"""Addresses: those that only programs on this machine reach, and those where this one listens."""

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_here(url: str) -> bool:
    """Whether a URL names this machine. False for text that is no URL; raises ValueError for a
    malformed one (`http://[`)."""
    return urlsplit(url).hostname in LOOPBACK


def is_http(url: str) -> bool:
    """Whether a text is the URL of a web server."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port above 65535
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, to be handed to a server: from now on no other program can take the
    port. Raises OSError with a sentence."""
    with listening(host, port):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[None]:
    """Turn errors of the `with` body, which begins to listen there, into an OSError with a
    sentence."""
    try:
        yield
    except (OSError, OverflowError, UnicodeError) as error:
        why = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        words = f"Nothing can be served at {host}:{port}: {why}; choose another host or port."
        raise OSError(words) from error

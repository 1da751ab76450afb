"""Reads web pages in a process of its own, which a page may bring down: a few bytes of HTML can
take a parser hours, or all memory. The limits on bytes, tags and depth (`page_tree`) come first and
do not depend on the machine; those on time and memory are for what they let through."""

import json
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from runner.lib.paths import LAB
from runner.worker.texts.page_text import Block, Read, read
from runner.worker.texts.page_tree import DEPTH, Unreadable

SECONDS = 20  # of a processor, for one page
MEMORY = 3 << 30  # bytes of address space
STOPPED = f"more than {SECONDS} seconds of a processor or {MEMORY >> 30} GiB of memory"
FAILED = "its parser failed"  # with a Python error
ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONPATH": str(LAB)}  # no secrets

Reader = Callable[[bytes], Read]  # raises Unreadable


@contextmanager
def opened(markdown: bool, seconds: float = SECONDS) -> Iterator[Reader]:
    """Reads pages, in UTF-8, one after the other. A page that ends the process is unreadable, and
    the next one gets a new process. Raises RuntimeError if a process cannot even begin, which is no
    page's fault."""
    child: _Child | None = None

    def ask(page: bytes) -> Read:
        nonlocal child
        child = child or _Child(markdown, seconds)
        try:
            return child.read(page)
        except (EOFError, OSError):
            was_killed, child = child.end(), None
            raise Unreadable(STOPPED if was_killed else FAILED) from None

    try:
        yield ask
    finally:
        if child:
            child.end()


class _Child:
    def __init__(self, markdown: bool, seconds: float) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle, asked = theirs.fileno(), "markdown" if markdown else "text"
            command = [sys.executable, "-m", __name__, str(handle), asked, str(seconds)]
            self._process = subprocess.Popen(
                command, pass_fds=[handle], stdin=subprocess.DEVNULL, env=ENVIRONMENT
            )
        self._pages = Connection(ours.detach())
        try:
            self._pages.recv_bytes()  # that it can begin
        except (EOFError, OSError):
            self.end()
            code = self._process.returncode
            raise RuntimeError(
                f"the process that reads pages ended with {code} before its first page; its log "
                "says why"
            ) from None

    def read(self, page: bytes) -> Read:
        """Raises Unreadable, and EOFError or OSError if the process ended."""
        self._pages.send_bytes(page)
        answer = json.loads(self._pages.recv_bytes())
        if isinstance(answer, str):
            raise Unreadable(answer)
        title, blocks = answer
        return Read(title, [Block(*block) for block in blocks])

    def end(self) -> bool:
        """End the process. Returns whether a signal ended it, as its limits do."""
        self._pages.close()  # which a process that waits for a page takes as the end
        try:
            return self._process.wait(timeout=5) < 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait() < 0


def main(handle: int, markdown: bool, seconds: float) -> None:
    """Answer each page with its title and blocks, or with why it cannot be read."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(10 * DEPTH)
    with Connection(handle) as pages:
        pages.send_bytes(b"ready")
        while True:
            try:
                page = pages.recv_bytes()
            except EOFError:
                return
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # its signal ends this process
            pages.send_bytes(_answer(page, markdown))
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _answer(page: bytes, markdown: bool) -> bytes:
    try:
        found: object = read(page, markdown)
    except Unreadable as why:
        found = str(why)
    except MemoryError:
        found = STOPPED
    return json.dumps(found).encode()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "markdown", float(sys.argv[3]))

"""A thread that lives as long as a `with` body."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Call `run` in a thread during the `with` body. At its end the event is set, and the thread
    has to end."""
    over = threading.Event()
    thread = threading.Thread(target=run, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

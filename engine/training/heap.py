"""One process-wide setting that makes training on a CPU much faster: keep the heap. XLA gives its
temporary buffer back and takes it again every step, which costs tens of thousands of page faults;
told never to return memory, glibc reuses the pages."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # from glibc's malloc.h


def keep_heap() -> bool:
    """Make glibc keep freed memory, and say whether it does. Elsewhere it changes nothing.

    The process never shrinks afterwards, so only the training process calls this, before its
    first compilation.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1, M_ARENA_MAX: 1}
    done = [mallopt(name, value) for name, value in settings.items()]
    return done == [1, 1, 1]

import platform
import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource
from engine.training.heap import keep_heap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(64 * 2**20)
    ctypes.memset(block, 1, 64 * 2**20)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

loose = faults(), faults()
assert keep_heap()
kept = faults(), faults()
print(loose[1], kept[1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_a_kept_heap_is_used_again_without_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True, timeout=60
    )
    loose, kept = map(int, done.stdout.split())
    assert kept < loose / 10

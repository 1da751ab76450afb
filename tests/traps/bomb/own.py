"""Doubles itself, nine times at most, and each part stays."""

import os
import signal
import time


def step(config, inputs, out):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for _ in range(9):
        try:
            os.fork()
        except OSError:
            break
    time.sleep(60)

"""Leaves somebody behind who would change the output after it was read."""

import os
import time


def step(config, inputs, out):
    (out / "figure.txt").write_text("1")
    if not os.fork():
        os.setsid()
        if not os.fork():
            time.sleep(1)
            (out / "figure.txt").write_text("2")
        os._exit(0)

"""Never ends, and does not hear when it is told to."""

import signal
import time


def step(config, inputs, out):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    (out / "begun.txt").write_text("begun")
    time.sleep(120)

"""Prints without end, and a little afterwards."""

import sys


def step(config, inputs, out):
    line = b"\x1b[31m::set-output name=x::@everyone " + b"x" * (1 << 20) + b"\n"
    for _ in range(config["megabytes"]):
        sys.stdout.buffer.write(line)
    sys.stdout.flush()
    (out / "done.txt").write_text("done")

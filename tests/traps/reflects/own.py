"""Imports one harmless function of the lab, and reaches another, which it has not imported, by
what the first one's module holds. An edit of the second would change what this step writes, and
not what it seems to depend on."""

from runner.lib.untrusted_files import printable

REACHED = printable.__globals__["short"]


def step(config, inputs, out):
    (out / "reached.txt").write_text(REACHED("/secret/work/x1"))

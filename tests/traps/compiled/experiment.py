"""Declares, and on the way looks around and lays something down."""

import os
import socket

from runner.api import Declaration, Step

if "REGATTA_TRAP" in os.environ:
    open(os.environ["REGATTA_TRAP"], "w").close()
reached = [path for path in ("/root", "/home", "/etc/passwd") if os.path.exists(path)]
try:
    socket.create_connection(("127.0.0.1", 22), timeout=0.2)
    reached.append("network")
except OSError:
    pass
experiment = Declaration(
    title=f"It saw {os.environ.get('REGATTA_TRAP', 'nothing')}",
    resources={"kind": "cpu"},
    steps={"a": Step(do="own:step")},
)

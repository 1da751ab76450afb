"""Notices that a machine will be taken away. There are two: SIGTERM, which a machine that shuts
down sends to all processes, and the answer of Google's metadata server, which comes some seconds
earlier. `watched` turns the second into the first, so that a training has one thing to listen to:
it saves, raises `Left`, and its process ends with the code LEFT.

Light, because every process of a step imports it.
"""

import http.client
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from runner.lib.threads import meanwhile

LEFT = 79  # exit code of a process that saved and left
LOOK_EVERY = 2.0  # seconds between two questions to the metadata server
NOBODY = 3  # questions without an answer, after which there is no such server
ANSWERS_WITHIN = 2.0  # seconds; it is on the same machine
GONE_WITHIN = 90.0  # seconds between a notice and the machine's end; Google says 30
HOST = "GCE_METADATA_HOST"  # names another metadata server, as for Google's libraries
MOST_ANSWER = 1 << 20  # bytes


class Left(Exception):
    """The work was saved and left, because its machine will be taken away."""


def announced() -> bool | None:
    """Whether the metadata server says that this machine will be taken away; None if there is no
    such server.

    https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys: `preempted` is TRUE and
    `maintenanceEvent` is TERMINATE_ON_HOST_MAINTENANCE from the notice on.
    """
    connection = http.client.HTTPConnection(
        os.environ.get(HOST, "metadata.google.internal"), timeout=ANSWERS_WITHIN
    )
    try:
        connection.request(
            "GET",
            "/computeMetadata/v1/instance/?recursive=true",
            headers={"Metadata-Flavor": "Google"},
        )
        said = json.loads(connection.getresponse().read(MOST_ANSWER))
        event = str(said.get("maintenanceEvent", ""))
        return said.get("preempted") == "TRUE" or event.startswith("TERMINATE")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return None
    finally:
        connection.close()


@contextmanager
def watched(asked: bool) -> Iterator[None]:
    """If `asked`, send SIGTERM to this process when the metadata server announces its machine's end
    during the `with` body. On a machine without such a server, does nothing."""

    def watch(over: threading.Event) -> None:
        unheard = 0.0
        while unheard < NOBODY and not over.is_set():
            if said := announced():
                os.kill(os.getpid(), signal.SIGTERM)
                return
            # Once there was an answer, a lost one is no reason to stop.
            unheard = -math.inf if said is not None else unheard + 1
            over.wait(LOOK_EVERY)

    with meanwhile(watch) if asked else nullcontext():
        yield


def wait_for_the_end(sleep: Callable[[float], object] = time.sleep) -> None:
    """Wait while this machine is announced to be taken away, so that nothing is started on it."""
    until = time.monotonic() + GONE_WITHIN
    while announced() and time.monotonic() < until:
        sleep(LOOK_EVERY)

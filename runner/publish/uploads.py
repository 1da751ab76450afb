"""Uploads finished executions to other places, again and again until each is there; and those that
run, for a place that shows them meanwhile."""

import logging
import threading
import time
from collections.abc import Callable

from runner.schema import record
from runner.store.store import Store

LOOK_EVERY = 20.0  # seconds between two looks
RETRY_AFTER = 600.0  # seconds until a failed upload is retried

# The result of an upload: what is there now, and errors as sentences.
Upload = Callable[[Store, str], tuple[list[str], list[str]]]

log = logging.getLogger(__name__)


def keep(
    wanted: Callable[[], bool],
    upload: Upload,
    store: Store,
    stop: threading.Event,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> None:
    """Call `upload` for each finished execution, and again where it had errors, until `stop` is set
    or uploads are not `wanted`; and `meanwhile` again and again for one that has not ended."""
    due: dict[str, float] = {}  # when each execution is looked at again
    while wanted() and not stop.wait(LOOK_EVERY):
        for execution in record.names(store, "executions"):
            if stop.is_set() or due.get(execution, 0) > time.monotonic():
                continue
            troubles: list[str] = []
            try:
                if not record.read(store, f"executions/{execution}/result", record.Ending):
                    meanwhile(execution)
                    continue
                _, troubles = upload(store, execution)
            except Exception as error:  # such as a full disk
                troubles = [repr(error)]
            for trouble in troubles:
                log.warning("%s: %s", execution, trouble)
            due[execution] = time.monotonic() + RETRY_AFTER if troubles else float("inf")

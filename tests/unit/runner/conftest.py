"""The fixtures of `tests/runner`."""

from tests.runner.fixtures import bucket as bucket
from tests.runner.fixtures import fake as fake
from tests.runner.fixtures import gcs_server as gcs_server
from tests.runner.fixtures import impatient as impatient

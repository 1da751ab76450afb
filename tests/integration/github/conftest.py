"""The fixtures of `tests/github`."""

from tests.github.fixtures import github as github
from tests.github.fixtures import recorder as recorder
from tests.sandbox.fixtures import ask as ask
from tests.sandbox.fixtures import received as received
from tests.sandbox.fixtures import sandbox as sandbox
from tests.sandbox.fixtures import told as told
from tests.sandbox.fixtures import url as url

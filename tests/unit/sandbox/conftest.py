"""The fixtures of `tests/sandbox`."""

from tests.sandbox.fixtures import ada as ada
from tests.sandbox.fixtures import ask as ask
from tests.sandbox.fixtures import bot as bot
from tests.sandbox.fixtures import received as received
from tests.sandbox.fixtures import recorder as recorder
from tests.sandbox.fixtures import sam as sam
from tests.sandbox.fixtures import sandbox as sandbox
from tests.sandbox.fixtures import told as told
from tests.sandbox.fixtures import url as url

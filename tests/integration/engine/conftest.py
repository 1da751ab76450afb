"""The fixtures of `tests/engine`."""

from tests.engine.fixtures import dozen as dozen
from tests.engine.fixtures import fresh as fresh
from tests.engine.fixtures import text as text
from tests.engine.fixtures import tiny as tiny
from tests.engine.fixtures import tokens as tokens

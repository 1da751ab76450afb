"""The client for GitHub. PyGithub makes every request; this room judges the answers (`answers`),
adds clock, limits and what was read before (`connection`, `reads`, `place`), creates and renews
tokens (`credentials`), and offers the lab's operations (`lists`, `branches`, `trees`, `words`).
Nothing else imports PyGithub."""

from bot.github.answers import Gone, Later, Refused, RefusedForNow, Unauthorized, Unusable
from bot.github.connection import Bearer, Line
from bot.github.credentials import AppAuth
from bot.github.lists import Attempt
from bot.github.trees import Entry
from bot.github.words import GitHub, Made

__all__ = ["AppAuth", "Attempt", "Bearer", "Entry", "GitHub", "Gone", "Later", "Line", "Made"]
__all__ += ["Refused", "RefusedForNow", "Unauthorized", "Unusable"]

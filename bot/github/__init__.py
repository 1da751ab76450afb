"""The client for GitHub. PyGithub makes every request; this room adds clock, limits and error types
(`connection`, `place`), creates and renews tokens (`credentials`), and offers the lab's operations
(`lists`, `branches`, `words`). Nothing else imports PyGithub."""

from bot.github.connection import Bearer, Forbidden, Gone, Later, Line, Refused, Unusable
from bot.github.credentials import AppAuth
from bot.github.lists import Attempt
from bot.github.words import Entry, GitHub, Made

__all__ = ["AppAuth", "Attempt", "Bearer", "Entry", "Forbidden", "GitHub", "Gone"]
__all__ += ["Later", "Line", "Made", "Refused", "Unusable"]

"""Speaking to GitHub. PyGithub makes every request; this room holds it to the lab's manners
(`connection`, `place`), dates and renews its tokens (`credentials`), and says what the lab asks and
does in the lab's own words (`lists`, `branches`, `words`). Nothing else imports PyGithub."""

from bot.github.connection import Bearer, Forbidden, Gone, Later, Line, Refused
from bot.github.credentials import AppAuth
from bot.github.lists import Attempt
from bot.github.words import Entry, GitHub, Made

__all__ = ["AppAuth", "Attempt", "Bearer", "Entry", "Forbidden", "GitHub", "Gone"]
__all__ += ["Later", "Line", "Made", "Refused"]

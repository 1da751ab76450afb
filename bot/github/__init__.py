"""Speaking to GitHub. PyGithub makes every request; this room holds it to the lab's manners
(`connection`, `place`), dates and renews its tokens (`credentials`), and says what the lab asks and
does in the lab's own words (`lists`, `branches`, `words`). Nothing else imports PyGithub."""

from bot.github.connection import Forbidden as Forbidden
from bot.github.connection import Gone as Gone
from bot.github.connection import Later as Later
from bot.github.connection import Line as Line
from bot.github.connection import Moved as Moved
from bot.github.connection import Refused as Refused
from bot.github.credentials import AppAuth as AppAuth
from bot.github.credentials import Bearer as Bearer
from bot.github.lists import Attempt as Attempt
from bot.github.lists import Found as Found
from bot.github.lists import Seen as Seen
from bot.github.words import Changed as Changed
from bot.github.words import Entry as Entry
from bot.github.words import GitHub as GitHub
from bot.github.words import Made as Made

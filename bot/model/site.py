"""The addresses of the lab's pages, for links in comments."""

from dataclasses import dataclass
from urllib.parse import quote

from runner.analysis.comparability import Scored


@dataclass(frozen=True)
class Site:
    """Where people reach the lab's pages."""

    url: str  # without a slash at its end
    live: bool = True  # whether it shows executions while they run; only the bot's server does

    def execution(self, id: str) -> str:
        """The page of an execution that has ended."""
        return f"{self.url}/executions/{id}/"

    def watched(self, id: str, run: str = "") -> str | None:
        """The page of an execution, or of one of its runs, while it runs; None if there is none."""
        return f"{self.url}/live/{id}{f'/{quote(run)}' if run else ''}" if self.live else None

    def run(self, id: str, name: str) -> str:
        """The page of a run with a score."""
        return f"{self.url}/runs/{id}.{quote(name)}.html"

    def board(self, scored: Scored | None) -> str:
        """The board of what is scored on this text; without one, all boards."""
        return f"{self.url}/boards/{scored.id}.html" if scored else f"{self.url}/leaderboards.html"

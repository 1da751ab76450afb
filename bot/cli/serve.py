"""`regatta serve`: the bot as a server."""

from bot.cli.options import reads, told
from bot.setup.settings import Settings


@reads("app_id", "seconds_between_writes", "key", "metrics_port", "metrics_host", "logs")
def command(settings: Settings, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Run the bot. Secrets come from the environment, or from files that it names."""
    from bot.service import server
    from runner.publish.signing import BadKey
    from runner.store.store import StoreError

    mend = "Mend REGATTA_REPOSITORY, or install the App there."
    with told(settings, "these credentials", mend, BadKey, StoreError):
        server.serve(settings, host, port)

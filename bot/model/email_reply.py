"""Where a reply by e-mail ends and what it answers begins. GitHub makes a comment of the whole
e-mail: the answer, a signature, and often the original below them, with `>` or without. Pure.

What mail programs write between the two, in whatever language: a line with a date, an address and a
colon at its end ("On …, regatta-lab[bot] <notifications@github.com> wrote:"), a block of headers
("From: …", "Sent: …", "To: …"), or a separator ("-----Original Message-----"). A signature begins
with a line of two dashes (RFC 3676, 4.3). Facts of mailgun/talon, zapier/email-reply-parser and
crisp-oss/email-reply-parser, as their issues tell them; each line is looked at once, because the
libraries' expressions take minutes for some texts of 16,000 characters.
"""

import re
from collections.abc import Sequence

MAX_WRAPPED = 3  # lines into which a mail program breaks the line that names the original
# Also as GitHub masks an address: ***@***.***
_ADDRESS = re.compile(r"[^\s@<>]@[^\s@<>]")
_VERB = re.compile(
    r"\b(wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef|skrev|napisał(\(a\))?|napsal"
    r"|kirjoitti|написал(а)?|yazdı)\b[^:]{0,80}:$",
    re.IGNORECASE,
)
_HEADER = re.compile(r"[*_ ]{0,3}[^\W\d_][^:：\n]{0,24}[:：][*_ ]{0,3}\S")
_SEPARATOR = re.compile(
    r"-{3,} ?[^-]{0,20}(message|nachricht|mensaje|messaggio|mensagem|bericht|meddelande|meddelelse"
    r"|besked|wiadomość|zpráva|сообщение)[^-]{0,20} ?-{3,}",
    re.IGNORECASE,
)
# Sentences of the bot's own that stand beside a command in its comments.
_BOTS = re.compile(
    r"<!-- regatta|\*{0,2}To start it\*{0,2}, a maintainer comments:"
    r"|This line approves exactly this plan\."
)


def length_of_reply(lines: Sequence[str]) -> int:
    """How many of a comment's lines its author wrote: all of them, if it is no reply by e-mail."""
    return next((n for n in range(len(lines)) if _is_end(lines, n)), len(lines))


def _is_end(lines: Sequence[str], n: int) -> bool:
    line = lines[n].strip()
    return (
        line == "--"
        or _SEPARATOR.fullmatch(line) is not None
        or _BOTS.search(line) is not None
        or _names_original(lines, n)
        or _is_header_block(lines[n : n + 3])
    )


def _names_original(lines: Sequence[str], n: int) -> bool:
    """Whether a sentence begins here that says when who wrote what follows."""
    sentence = ""
    for line in lines[n : n + MAX_WRAPPED]:
        if not line.strip():
            return False
        sentence = f"{sentence} {line.strip()}".replace("\xa0", " ")[-400:]
        if sentence.endswith((":", "：")):
            is_dated = any(letter.isdigit() for letter in sentence)
            return is_dated and bool(_ADDRESS.search(sentence) or _VERB.search(sentence))
    return False


def _is_header_block(lines: Sequence[str]) -> bool:
    """Whether these three lines are headers of an e-mail, one of them with an address."""
    headers = [line for line in lines if _HEADER.match(line)]
    return len(headers) == 3 and any(_ADDRESS.search(line) for line in headers)

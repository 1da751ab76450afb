"""Where a reply by e-mail ends and what it answers begins. GitHub makes a comment of the whole
e-mail: the answer, a signature, and often the original below them, with `>` or without. Pure.

What mail programs write between the two, in whatever language: a line with a date, an address and a
colon at its end ("On …, regatta-lab[bot] <notifications@github.com> wrote:"), a block of headers
("From: …", "Sent: …", "To: …"), or a separator ("-----Original Message-----"). A signature begins
with a line of two dashes (RFC 3676, 4.3). Facts of mailgun/talon, zapier/email-reply-parser and
alfonsrv/mail-parser-reply, as their issues tell them; each line is looked at once, because the
last one's expressions take more than a minute for some texts of 16,000 characters.
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
    r"<!-- regatta|\*{0,2}(To start it\*{0,2}|It starts by itself\.\*{0,2} If it does not)"
    r", a maintainer comments:"
    r"|This line approves exactly this plan\."
)


def length_of_reply(lines: Sequence[str]) -> int:
    """How many of a comment's lines its author wrote: all of them, if it is no reply by e-mail."""
    for n, line in enumerate(map(str.strip, lines)):
        wrapped = _lines_of_sentence(lines, n)
        is_end = line == "--" or _SEPARATOR.fullmatch(line) or _BOTS.match(line)
        if wrapped or is_end or _is_header_block(lines[n : n + 3]):
            return n - max(0, wrapped - 1)
    return len(lines)


def _lines_of_sentence(lines: Sequence[str], last: int) -> int:
    """Over how many lines a sentence goes that ends here and says when who wrote what follows; 0 if
    none does. If what follows is marked by `>`, Markdown knows where it ends, and the author may go
    on below it."""
    if not lines[last].rstrip().endswith((":", "：")):
        return 0
    below = next((line for line in lines[last + 1 : last + 4] if line.strip()), "")
    sentence = ""
    for count in range(1, min(MAX_WRAPPED, last + 1) + 1):
        line = lines[last + 1 - count].strip().replace("\xa0", " ")
        sentence = f"{line[-400:]} {sentence}".strip()
        names_sender = _ADDRESS.search(sentence) or _VERB.search(sentence)
        if names_sender and any(letter.isdigit() for letter in sentence):
            return 0 if below.lstrip().startswith(">") else count
        if not line:
            break
    return 0


def _is_header_block(lines: Sequence[str]) -> bool:
    """Whether these three lines are headers of an e-mail, one of them with an address."""
    headers = [line for line in lines if _HEADER.match(line)]
    return len(headers) == 3 and any(_ADDRESS.search(line) for line in headers)

"""Replies by e-mail, as mail programs send them."""

import pytest

from bot.model.email_reply import length_of_reply

ORIGINAL = ["", "Plan 1: six runs", "", "/run k3f2-abcd-efgh-ijkl-mnop"]
ADDRESS = "regatta-lab[bot] <notifications@github.com>"

ENDS = {  # dependabot/feedback#277, OCA/oca-github-bot#82, and the libraries' issues
    "Gmail": [f"On Sat, Nov 28, 2026 at 10:00 AM {ADDRESS} wrote:"],
    "Gmail, wrapped": [
        "On Sat, Nov 28, 2026 at 10:00 AM regatta-lab[bot] <",
        "notifications@github.com> wrote:",
    ],
    "Apple Mail, masked": ["On Nov 28, 2026, at 10:00, regatta-lab[bot] ***@***.***> wrote:"],
    "Thunderbird": ["On 28/11/2026 10:00, regatta-lab[bot] wrote:"],
    "German": [f"Am 28.11.2026 um 10:00 schrieb {ADDRESS}:"],
    "French": [f"Le sam. 28 nov. 2026 à 10:00, {ADDRESS} a écrit\xa0:"],
    "French, no address": ["Le 28/11/2026 à 10:00, regatta-lab[bot] a écrit :"],
    "Spanish": ["El sáb, 28 nov 2026 a las 10:00, regatta-lab[bot] (<", "a@b.org>) escribió:"],
    "Italian": [f"Il giorno sab 28 nov 2026 alle ore 10:00 {ADDRESS} ha scritto:"],
    "Portuguese": [f"Em sáb., 28 de nov. de 2026 às 10:00, {ADDRESS} escreveu:"],
    "Dutch": [f"Op za 28 nov 2026 om 10:00 schreef {ADDRESS}:"],
    "Polish": [f"sob., 28 lis 2026 o 10:00 {ADDRESS} napisał(a):"],
    "Japanese": [f"2026年11月28日(土) 10:00 {ADDRESS}:"],
    "Chinese": [f"{ADDRESS} 于2026年11月28日周六 10:00写道："],
    "Korean": [f"2026년 11월 28일 (토) 오전 10:00, {ADDRESS}님이 작성:"],
    "Outlook": [
        f"From: {ADDRESS}",
        "Sent: Saturday, November 28, 2026 10:00 AM",
        "To: regatta-lab/lab <lab@noreply.github.com>",
        "Subject: Re: [regatta-lab/lab] Warmer (PR #2)",
    ],
    "Outlook, German": [f"**Von:** {ADDRESS}", "**Gesendet:** Samstag", "**An:** ein Labor"],
    "an old Outlook": ["-----Original Message-----"],
    "an old Outlook, German": ["-----Ursprüngliche Nachricht-----"],
    "a signature": ["-- ", "Grace", "Sent from my phone"],
    "the bot's own words": ["**To start it**, a maintainer comments:"],
    "its words to an agent": ["**It starts by itself.** If it does not, a maintainer comments:"],
    "humanmade/Falcon#37": [
        "On 1 October 2026 at 10:00:00, regatta-lab[bot] (a@b.org) said:",
        "",
        "",
    ],
    "zapier/email-reply-parser#1": [
        "From: regatta-lab[bot] [mailto:a@b.org]",
        "Sent: Monday, November 26, 2026 10:48 AM",
        "To: Grace",
    ],
    "github/email_reply_parser#19": ["From: Regatta Lab ", "Sent: Tuesday", "To: a@b.org "],
    "alfonsrv/mail-parser-reply#26": ["-----Oprindelig meddelelse-----"],
    "alfonsrv/mail-parser-reply#31": [f"Den lör 28 nov. 2026 kl 10:00 {ADDRESS}", "skrev:"],
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_a_reply_answers_is_not_the_authors(end: list[str]) -> None:
    answer = ["Do not start this yet.", "The seeds are wrong: 0, 1.", ""]
    assert length_of_reply([*answer, *end, *ORIGINAL]) == len(answer)


@pytest.mark.parametrize(
    "lines",
    [
        ["Looks good", "", "/run"],
        ["On Monday I wrote:", "", "/run"],
        ["On 3 seeds it holds, so:", "", "/run"],
        ["From: what I see this is good", "", "/run"],
        ["seeds: [0, 1]", "arms: fast", "note: @grace agreed", "/run"],
        ["Results", "---", "", "| a | b |", "| -- | -- |", "", "/run"],
        ["--- done ---", "/run"],
        ["---", "/run", "---"],
        ["Write to lab@example.org", "", "/run"],
        [],
    ],
)
def test_the_authors_own_words_are_all_hers(lines: list[str]) -> None:
    assert length_of_reply(lines) == len(lines)

"""Which words of a comment are meant for the lab."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model.commands import KNOWN, MAX_COMMANDS, MAX_READ, Command, Reading, read


def commands(body: str) -> list[tuple[str, str]]:
    return [(command.name, command.argument) for command in read(body).commands]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("/run", [("run", "")]),
        ("/help", [("help", "")]),
        ("/status", [("status", "")]),
        ("/cancel x0123456789abcdef", [("cancel", "x0123456789abcdef")]),
        ("  /run", [("run", "")]),
        ("/run   \t ", [("run", "")]),
        ("/run\u00a0", [("run", "")]),
        ("/cancel \t x1  y ", [("cancel", "x1  y")]),
        ("/run\r\n", [("run", "")]),
        ("/run\r", [("run", "")]),
        ("Looks good.\n\n/run\n\nThanks!", [("run", "")]),
        ("Looks good.\n/run\nThanks!", [("run", "")]),
        ("Looks good.\r\n/run\r\nThanks!", [("run", "")]),
        ("Looks good.  \n/run", [("run", "")]),
        ("/run\n/status", [("run", ""), ("status", "")]),
        ("/run\n\n/run", [("run", ""), ("run", "")]),
        ("Before\x0cthe\u2028line\n\nand\x0bmore\n\n/run", [("run", "")]),
        ("> quoted\n\n/run", [("run", "")]),
        ("```\ncode\n```\n/run", [("run", "")]),
        ("- item\n\n/run", [("run", "")]),
        ("<details>\n<summary>x</summary>\n\nwords\n</details>\n\n/run", [("run", "")]),
        ("See `/status`.\n\n/run", [("run", "")]),
        ("It cost 5$.\n/run", [("run", "")]),
        ("$$\nx\n$$\n\n/run", [("run", "")]),
        ("$x$ and $y$\n/run", [("run", "")]),
        ("From $5 to\n/run\nand $6", [("run", "")]),
        ("About ~5 and ~6\n/run\nor ~7", [("run", "")]),
        ("```\necho $$\n```\n/run\n```\necho $$\n```", [("run", "")]),
        ("`$$`\n/run\n`$$`", [("run", "")]),
        ("**a**, [b](c) and ~~d~~\n/run", [("run", "")]),
        ("*a\nb*\n/run", [("run", "")]),
        ("a<br>\n/run", [("run", "")]),
        ("<b>a</b> <!-- x --> b\n/run", [("run", "")]),
        ("words[^1]\n/run", [("run", "")]),
        ("[^1]: note\n\n/run", [("run", "")]),
        ("[^1]: note\n# head\n/run", [("run", "")]),
        ("[^1]: note\n```\nx\n```\n/run", [("run", "")]),
        ("[^1]: a\n\n    b\n\n/run", [("run", "")]),
        ("    [^1]: code\n\n/run", [("run", "")]),
        ("[^a b]: two words\n/run", [("run", "")]),
        ("[x]: y\n/run", [("run", "")]),
        ("A Vec<T>\n/run", [("run", "")]),  # GitHub leaves out what is no element
        ("<!-- <div> -->\n\n/run", [("run", "")]),
        ("<div>a</div>\n\n/run", [("run", "")]),
        ("<details>\n\nwords </details>\n\n/run", [("run", "")]),
        ("<br>\n\n<img src=x>\n\n/run", [("run", "")]),
    ],
)
def test_a_line_of_its_own_that_begins_with_a_slash_is_a_command(
    body: str, found: list[tuple[str, str]]
) -> None:
    assert commands(body) == found


@pytest.mark.parametrize(
    "body",
    [
        "",
        "No command here.",
        "Please /run this.",
        "and then/run",
        "//run",
        "/ run",
        "/run/",
        "/run,now",
        "/etc/passwd",
        "```\n/run\n```",
        "~~~\n/run\n~~~",
        "```\n/run",
        "````\n```\n/run\n````",
        "    /run",
        "\t/run",
        "`/run`",
        "words `\n/run\n` words",
        "``\n/run\n``",
        "<!-- /run -->",
        "<!--\n\n/run\n\n-->",
        "words <!--\n/run\n--> words",
        "<details>\n/run\n</details>",
        "<div>\n/run\n</div>",
        "<pre>\n\n/run\n\n</pre>",
        "<script>\n\n/run\n\n</script>",
        "> /run",
        "> [!NOTE]\n> /run",
        "- /run",
        "1. /run",
        "| a |\n| --- |\n| /run |",
        "\\/run",
        "&#47;run",
        "&#x2f;run",
        "&sol;run",
        "**/run**",
        "*/run*",
        "~~/run~~",
        "[/run](x)",
        "![/run](x)",
        "/run **now**",
        "$$\n/run\n$$",
        "words $$\n/run\n$$ words",
        "$$\na\n\n/run\n\nb\n$$",
        "**a** $$\n/run\n$$ **b**",
        "words $x\n/run\ny$ words",
        "$`\n/run\n`$",
        "```math\n/run\n```",
        "[a\n/run\nb](x)",
        "[a\n/run\nb][x]\n\n[x]: y",
        "![a\n/run\nb](x)",
        "~~a\n/run\nb~~",
        "~a\n/run\nb~",
        "*a\n/run\nb*",
        "__a\n/run\nb__",
        "***a\n/run***",
        "words <b>\n/run\n</b>",
        "words <a href=x>\n/run",
        "[x]: /run",
        "[x]:\n/run",
        "/\u200brun",
        "\u2215run",  # division slash
        "/ruп",  # Cyrillic п
        "/r\u0131un",
        "/\u202enur",
        "/ｒｕｎ",
        "/-run",
        "/1run",
        "/" + "r" * 50,
    ],
)
def test_talk_about_commands_is_no_command(body: str) -> None:
    assert read(body) == Reading()


@pytest.mark.parametrize(
    "body",
    [
        "> Shall I?\n/run",
        "> > Shall I?\n/run",
        "- [ ] words\n/run",
        "- item\n  /run",
        "- item\n/run",
        "# /x\n\n> words\n/cancel x1",
        "/run\n===",
        "[^1]: note\n/run",
        "[^1]: some words\n/run",
        "[^1]:\tsome words\n   /run",
        "words[^note-2]\n\n[^note-2]: note\nmore\n/run",
        "words\n[^1]: note\n/run",
        "[x]: y\n[^1]: note\n/run",
        "[^1]: a\n[^2]: b\n/run",
        "[^1]: a\n    /run",
        "[^1]: a\n\n    b\n/run",
        "> [^1]: a\n    [^2]: b\n/run",
        "- [^1]: a\n/run",
        "| a |\n| --- |\n/run",
        "a | b\n--- | ---\n/run",
        "> [!NOTE]\n/run",
        "- [x] task\n/run",
        "- a\n\n    /run",
        "<details>\n\n/run\n\n</details>",
        "<details><summary>x</summary>\n\n/run\n",
        "<blockquote>\n\n/run\n\n</blockquote>",
        "<BLOCKQUOTE\nclass=x>\n\n/run",
        "<table><tr><td>\n\n/run\n\n</td></tr></table>",
        "<del>\n\n/run\n\n</del>",
        "<blockquote>\n\n</b>\n\n/run",
        "words <details>\n\n/run",
    ],
)
def test_a_command_that_markdown_draws_into_something_else_is_noticed(body: str) -> None:
    found = read(body)
    assert found.commands == ()
    assert found.swallowed


@pytest.mark.parametrize(
    # weechat/weechat#423, rails/rails#8421, mdn/content#19163; slack-ruby/slack-ruby-bot#256,
    # errbotio/errbot#1518 (between arguments), element-hq/element-web#1509
    ("body", "command"),
    [
        *(
            (f"{slash}cancel{space}x1", ("cancel", "x1"))
            for space in " \u00a0\u202f\u3000\u2003"
            for slash in "/／"
        ),
        ("/run\u200b", ("run", "")),
        ("\u200b/run", ("run", "")),
        ("\ufeff/run", ("run", "")),
        ("\u00a0\u00a0\u00a0\u00a0/run", ("run", "")),
        ("\u3000／run\u3000", ("run", "")),
        ("/run\u00a0arms=fast\u00a0seeds=0", ("run", "arms=fast seeds=0")),
        ("/run \u00a0 arms=fast", ("run", "arms=fast")),
    ],
)
def test_spaces_and_slashes_of_any_keyboard_are_read(body: str, command: tuple[str, str]) -> None:
    assert commands(body) == [command]
    assert commands(f"Looks good\n{body}\nThanks") == [command]


def test_a_command_with_words_after_a_comma_is_noticed() -> None:
    assert read("/run, thanks").near_misses == (("run", "run"),)
    assert read("/cancel: it is wrong").near_misses == (("cancel", "cancel"),)


ORIGINAL = "Plan 1: six runs\n\n/run k3f2-abcd-efgh-ijkl-mnop\n"
WROTE = "On Sat, Nov 28, 2026 at 10:00 AM regatta-lab[bot] <notifications@github.com> wrote:"


@pytest.mark.parametrize(  # dependabot/feedback#277, OCA/oca-github-bot#82
    "head",
    [
        WROTE,
        "From: regatta-lab[bot] <a@b.org>\nSent: Saturday\nTo: lab <lab@b.org>\nSubject: Re: 2",
        "-----Original Message-----",
        "**To start it**, a maintainer comments:",
    ],
)
def test_what_a_reply_by_email_answers_is_no_command(head: str) -> None:
    assert read(f"Do not start this yet.\n\n{head}\n\n{ORIGINAL}") == Reading()
    assert commands(f"/cancel\n\n{head}\n\n{ORIGINAL}") == [("cancel", "")]
    assert commands(f"/run\n{head}\n{ORIGINAL}") == [("run", "")]


def test_who_answers_below_a_quote_is_heard() -> None:
    quote = "> " + ORIGINAL.replace("\n", "\n> ")
    assert commands(f"{WROTE}\n\n{quote}\n\nLooks good\n/run") == [("run", "")]


@pytest.mark.parametrize("name", ["run", "cancel"])
@pytest.mark.parametrize(
    "mark",
    [
        "-- ",  # kubernetes/test-infra#9834
        "*-- *",  # github/email_reply_parser#46
        "--",  # willdurand/EmailReplyParser#40
        "\\\n--",  # chatwoot/chatwoot#15633
        "\n---",  # adam-p/markdown-here#661
    ],
)
def test_a_signature_makes_no_heading_of_a_command(name: str, mark: str) -> None:
    assert commands(f"/{name}\n{mark}\nGrace\nSent from my phone") == [(name, "")]


def test_what_is_below_a_signature_is_no_command() -> None:
    name = "run"
    below = read(f"I will see.\n-- \n/{name}")
    assert below == Reading(swallowed=True)
    assert read(f"I will see.\n-- \nGrace\n{WROTE}\n{ORIGINAL}") == Reading()


def test_an_escaped_command_beside_a_real_one_does_not_count() -> None:
    assert commands("\\/status\n\n/run") == [("run", "")]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("runn", "run"), ("cancle", "cancel"), ("stauts", "status"), ("hlep", "help")),
        *(("RUN", "run"), ("Run", "run"), ("Cancel", "cancel"), ("CANCEL", "cancel")),
        *(("cancel.", "cancel"), ("cancel!", "cancel"), ("Cancle.", "cancel")),
        ("cancel `x0123456789abcdef`", "cancel x0123456789abcdef"),
        ("run `k3f2-abcd-efgh-ijkl-mnop`", "run k3f2-abcd-efgh-ijkl-mnop"),
        ("cancle x1", "cancel x1"),
    ],
)
def test_a_near_miss_names_what_was_meant(typed: str, meant: str) -> None:
    assert read(f"/{typed}") == Reading(near_misses=((typed, meant),))


def test_a_near_miss_is_told_without_what_follows_where_that_could_be_anything() -> None:
    assert read("/RUN the plan above").near_misses == (("RUN", "run"),)
    assert read("/cancle **it** @all") == Reading()
    assert read("Words `\n/Run\n` words\n\n> /Cancel") == Reading()


def test_a_comment_is_read_once_and_what_stands_far_down_is_not_read_but_told() -> None:
    wide = "|a" * 13_000 + "|\n" + "|-" * 13_000 + "|\n" + "|\n" * 6_000
    began = time.process_time()
    found = [read(f"/status\n\n{wide}\n/run") for _ in range(20)]
    assert time.process_time() - began < 2
    assert found[0] == Reading((Command("status", "", 0),), too_long=True)
    assert read("a" * MAX_READ + "\n\n/run") == Reading(too_long=True)
    assert commands("a" * (MAX_READ - 8) + "\n\n/run") == [("run", "")]
    assert not read(f"/status\n\n{wide}").too_long


@pytest.mark.parametrize("word", ["approve", "merge", "deploy", "assign", "lgtm"])
def test_other_bots_commands_are_none_of_ours(word: str) -> None:
    assert read(f"/{word}") == Reading()


def test_commands_are_counted_and_only_the_first_few_taken() -> None:
    found = read("/help\n" * 100)
    assert found.commands == tuple(Command("help", "", n) for n in range(MAX_COMMANDS))
    assert found.too_many
    assert not read("/help\n" * MAX_COMMANDS).too_many
    assert len(read("\n".join(f"/statu{c}" for c in "abcdefghij")).near_misses) == MAX_COMMANDS


@pytest.mark.parametrize(
    "body",
    [
        "/run" + " " * 60_000 + "x",
        "/run" + " \t" * 30_000 + "x",
        "/run\n" * 12_000,
        "/runn\n" * 10_000,
        "> " * 20_000 + "/run",
        "- " * 20_000 + "/run",
        "`" * 30_000 + "/run",
        "".join("`" * n for n in range(1, 340)) + "\n/run",
        "[" * 50_000 + "\n/run",
        "![" * 25_000 + "\n/run",
        "*a " * 20_000 + "\n/run",
        "<a " * 20_000 + "\n/run",
        "&" * 60_000 + "\n/run",
        "\\" * 60_000 + "\n/run",
        "| a " * 15_000 + "\n" + "| - " * 15_000 + "\n/run",
        "/" * 60_000,
        "\n" * 60_000 + "/run",
        "$$ a" * 15_000 + "\n/run",
        "$a " * 15_000 + "\n/run",
        "~a " * 20_000 + "\n/run",
        "$a\n" * 20_000 + "/run",
        "a <b>" * 10_000 + "\n/run",
    ],
    ids=range(22),
)
def test_a_comment_of_sixty_thousand_characters_is_read_quickly(body: str) -> None:
    began = time.process_time()
    read(body)
    assert time.process_time() - began < 5


@given(st.text(st.sampled_from("/runcaelsthp \n\r\t>`-*<!|\\&#47;$~[]()\u2028\x0c"), max_size=200))
def test_whatever_is_read_as_a_command_stands_on_a_line_of_its_own(body: str) -> None:
    lines = [line.strip() for line in body.replace("\r", "\n").split("\n")]
    for command in read(body).commands:
        assert command.name in KNOWN
        assert any(line.split(maxsplit=1)[:1] == [f"/{command.name}"] for line in lines)

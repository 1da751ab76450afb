"""Names its files so that whoever prints or passes on the names is led astray."""

NAMES = (
    "a\nb.txt",
    'quote".txt',
    "'; touch sprung.txt; '.txt",
    "$(touch sprung.txt).txt",
    "`@everyone` | x |.txt",
    "<!-- regatta: status -->.txt",
    "\x1b[2J.txt",
    "-rf.txt",
)


def step(config, inputs, out):
    for name in NAMES:
        (out / name).write_text("x")

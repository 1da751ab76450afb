"""How to cite an execution or a run, as BibTeX. Pure."""

import re

from bot.site.facts.entries import Entry

# Characters with a meaning in TeX.
TEX = {
    **{one: f"\\{one}" for one in "{}$&%#_"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
}


def tex(words: str) -> str:
    """A text within the braces of a field."""
    return "".join(TEX.get(one, one) for one in " ".join(words.split()))


def bibtex(entry: Entry, what: str, lab: str, url: str) -> str:
    """The entry for an execution, or for `what` of it. `url`: its page; empty if that is
    unknown."""
    execution, origin, seal = entry.execution, entry.execution.origin, entry.seal
    key = "-".join(filter(None, ("regatta", execution.id, re.sub(r"[^A-Za-z0-9.]+", "-", what))))
    note = [f"execution {execution.id}"]
    note += [f"commit {origin.commit[:12]}"] if origin else ["local run, unsigned"]
    sealed = f"preregistered {seal.at:%Y-%m-%d} with the seal {seal.seal}" if seal else ""
    fields = {
        "title": tex(": ".join(filter(None, (entry.plan.title, what)))),
        "author": tex(entry.author),
        "year": str(execution.at.year),
        "howpublished": tex(lab) + (rf", \url{{{url}}}" if url else ""),
        "note": ", ".join([*note, sealed or "not preregistered"]),
    }
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items()]
    return f"@misc{{{key},\n" + ",\n".join(lines) + "\n}"

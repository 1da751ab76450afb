"""The text of reStructuredText, of docutils or of Sphinx, as gold for extraction.

Headings, paragraphs, lists, tables, code, notes, footnotes and alternative texts count; comments,
targets, tables of contents and what `.. raw::` holds do not. Any other directive gives its
arguments and its content, any other role its text, as Sphinx writes them (LABELS, OBJECTS, MEMBERS,
ROLES). A reference without a text of its own gives the title that it points to."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from docutils import core, nodes
from docutils.parsers.rst import Directive, directives, roles

ELSEWHERE = {
    *("include", "literalinclude", "toctree", "cmake-module", "audit-event-table", "miscnews"),
    *("limited-api-list", "automodule", "autoclass", "autofunction", "autosummary", "only"),
}
SILENT = {
    *("module", "index", "sectionauthor", "moduleauthor", "currentmodule", "highlight", "program"),
    *(
        "tabularcolumns",
        "testsetup",
        "testcleanup",
        "py:module",
        "py:currentmodule",
        "default-role",
    ),
}
VERBATIM = {
    *("code-block", "sourcecode", "doctest", "testcode", "testoutput", "productionlist", "math"),
}
LABELS = {  # of its arguments, and what joins them to the content
    "versionadded": ("New in version {}", "."),
    "versionchanged": ("Changed in version {}", "."),
    "deprecated": ("Deprecated since version {}", "."),
    "deprecated-removed": ("Deprecated since version {}, will be removed in version {}", "."),
    "seealso": ("See also", ""),
    "impl-detail": ("CPython implementation detail:", ""),
    "availability": ("Availability: {}", "."),
    "audit-event": ("Raises an auditing event {} with arguments {}", "."),
}
OBJECTS = {  # descriptions of Python's objects: what is before the name
    **{"class": "class ", "exception": "exception ", "function": "", "data": "", "decorator": "@"},
    **{"coroutinefunction": "coroutine ", "awaitablefunction": "awaitable "},
}
MEMBERS = {
    **{"staticmethod": "static ", "classmethod": "classmethod ", "coroutinemethod": "coroutine "},
    **{"abstractmethod": "abstractmethod ", "awaitablemethod": "awaitable "},
}
ROLES = {"pep": "PEP {}", "rfc": "RFC {}", "issue": "bpo-{}", "gh": "gh-{}"}
ROLES |= dict.fromkeys(("func", "meth", "c:func", "py:func", "py:meth"), "{}()")


class LeftOut(Exception):
    """The source has no gold; the message says why."""


class _Any(Directive):
    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        if self.name in ELSEWHERE:
            raise LeftOut(f"it takes text from elsewhere: {self.name}")
        said = re.sub(r"(?ms)^:[\w-]+:.*", "", "".join(self.arguments)).strip()
        document = self.state.document
        if self.name in ("module", "currentmodule", "py:module", "py:currentmodule"):
            document.regatta_module = f"{said}."
        if self.name in SILENT:
            return []
        lines = list(self.content)
        if self.name in VERBATIM:
            return [nodes.literal_block("", "\n".join(_after_options(lines)))]
        found: list[nodes.Node] = []
        if self.name in LABELS:
            text, messages = self.state.inline_text(self._labelled(said), self.lineno)
            found += [nodes.paragraph("", "", *text), *messages]
        elif said:
            for signature in re.sub(r"\\\n\s*", " ", said).split("\n"):
                shown = self._described(signature.replace("\\", "").strip())
                found.append(nodes.paragraph("", "", nodes.Text(shown)))
        inner = nodes.container()
        options = len(lines) - len(_after_options(lines))
        self.state.nested_parse(self.content[options:], self.content_offset + options, inner)
        return [*found, inner]

    def _labelled(self, said: str) -> str:
        label, end = LABELS[self.name]
        count = label.count("{}")
        parts = said.split(None, count) if count > 1 or "version" in label else [said]
        if self.name == "audit-event" and len(parts) > 1:
            parts = [parts[0], ", ".join(" ".join(parts[1:]).split(","))]
        if self.name == "audit-event" and len(parts) == 1:
            label = "Raises an auditing event {} with no arguments"
        rest = " ".join(parts[label.count("{}") :])
        shown = label.format(*parts, *[""] * count)
        return (
            f"{shown}: {rest}"
            if rest
            else shown + (end if not list(self.content) else ":" * bool(end))
        )

    def _described(self, signature: str) -> str:
        name = self.name.removeprefix("py:")
        if name in MEMBERS:
            return MEMBERS[name] + signature
        if name not in OBJECTS:
            return signature
        module = getattr(self.state.document, "regatta_module", "")
        return OBJECTS[name] + ("" if signature.startswith(module) else module) + signature


def _after_options(lines: list[str]) -> list[str]:
    for number, line in enumerate(lines):
        if line.strip() and not re.match(r":[\w-]+:", line):
            return lines[number:]
    return []


def _any_role(titles: Mapping[str, str]) -> Callable[..., Any]:
    def role(name: str, _raw: str, text: str, *_: Any, **__: Any) -> Any:
        name, text = name.lower().removeprefix("std:"), text.replace("\x00", "")
        if shown := re.fullmatch(r"(?s)(.+?)\s*<[^<>]*>", text):
            text = shown[1]
        elif name in ("ref", "doc"):
            text = titles.get(text.lower(), text)
        else:
            text = re.sub(r"^~(.*\.)?|^!", "", text)
        if name in ("file", "samp"):
            text = text.replace("{", "").replace("}", "")
        form = "{}" if shown or text.endswith(")") else ROLES.get(name, "{}")
        return [nodes.inline("", form.format(text))], []

    return role


class _Words(nodes.NodeVisitor):
    def __init__(self, document: nodes.document) -> None:
        super().__init__(document)
        self.lines: list[str] = []

    def visit_Text(self, node: nodes.Text) -> None:
        self.lines.append(node.astext())

    def visit_image(self, node: nodes.image) -> None:
        self.lines.append(f" {node.get('alt', '')}\n")

    def unknown_visit(self, node: nodes.Node) -> None:
        silent = nodes.comment, nodes.raw, nodes.system_message, nodes.substitution_definition
        if isinstance(node, (*silent, nodes.decoration, nodes.problematic)):
            raise nodes.SkipNode
        if isinstance(node, nodes.Admonition) and not isinstance(node, nodes.admonition):
            self.lines.append(f"{node.tagname}\n")

    def unknown_departure(self, node: nodes.Node) -> None:
        if not isinstance(node, nodes.Inline | nodes.Text):
            self.lines.append("\n")


def rest(text: str, titles: Mapping[str, str], sphinx: bool = False) -> str:
    """The text of reStructuredText, or of Sphinx's form of it. Raises LeftOut."""
    known, named = directives.directive, roles.role
    standard = {"note", "warning", "important", "caution", "tip", "hint", "danger", "attention"}
    standard |= {
        "rubric",
        "image",
        "figure",
        "table",
        "list-table",
        "csv-table",
        "topic",
        "sidebar",
    }
    standard |= {"epigraph", "contents", "raw", "replace", "unicode", "admonition", "role"}
    standard |= {
        "parsed-literal",
        "container",
        "compound",
        "line-block",
        "sectnum",
        "date",
        "title",
    }
    standard |= {"code", "error", "header", "footer", "highlights", "pull-quote", "meta", "target"}

    def directive(name: str, language: Any, document: Any) -> Any:
        if name in standard or (name == "class" and not sphinx):
            return known(name, language, document)
        return _Any, []

    def role(name: str, language: Any, line: int, reporter: Any) -> Any:
        plain = ("emphasis", "strong", "literal", "code", "math", "sub", "sup", "raw", "title")
        found = named(name, language, line, reporter) if name in plain else (None, [])
        return (found[0], []) if found[0] else (_any_role(titles), [])

    # Sources of the docutils project itself begin with the header of their site, an `include`.
    text = re.sub(r"\A\.\. include:: [./]*header2?\.txt\n", "", text)
    directives.directive, roles.role = directive, role
    try:
        settings = {"report_level": 5, "halt_level": 5, "file_insertion_enabled": False}
        settings |= {"raw_enabled": True, "doctitle_xform": False, "_disable_config": True}
        document = core.publish_doctree(text, settings_overrides=settings | {"smart_quotes": False})
    finally:
        directives.directive, roles.role = known, named
    for topic in list(document.findall(nodes.topic)):
        if "contents" in topic["classes"]:  # a table of contents repeats headings
            topic.parent.remove(topic)
    words = _Words(document)
    document.walkabout(words)
    return "".join(words.lines)


def titles_of(sources: Mapping[str, str]) -> dict[str, str]:
    """Of {name: reStructuredText}, the titles that labels and names of documents point to."""
    found = {}
    labelled = re.compile(
        r"^\.\. _([^:\n]+):\n(?:\s*\n|\.\. .*\n)*(?:[=\-~^*#]+\n)?(.+)\n[=\-~^*#.\"]{3,}$", re.M
    )
    first = re.compile(r"^(.+)\n[=\-*]{3,}$", re.M)
    for name, text in sources.items():
        for match in labelled.finditer(text):
            found[match[1].strip("`").lower()] = _plain(match[2])
        if match := first.search(text):
            found[name.lower()] = found[f"/{name.lower()}"] = _plain(match[1])
    return found


def _plain(title: str) -> str:
    return re.sub(r":[\w:+-]+:`~?([^`<]+)[^`]*`", r"\1", title).replace("`", "").strip()

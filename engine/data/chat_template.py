"""Chat templates: Jinja, as in Hugging Face's tokenizers, that write a conversation as one text.
What the assistant says is between `{% generation %}` and `{% endgeneration %}`.

Templates are strangers' text. They run in Jinja's immutable sandbox: they reach no private
attribute, no module, no clock, no chance and no address, so that a conversation is the same text in
each run: the day, which some of them write, is always DAY. They can still loop; the caller bounds
time and memory (`runner.isolation.template_child`).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache, wraps
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple, NoReturn, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import BlockReference
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Namespace

from engine.data import special_names
from engine.data.chat_values import BadTemplate as BadTemplate
from engine.data.chat_values import check_whole, message_of, tojson

FILE = "chat_template.jinja"  # its name in the folder of a model
MAX_TEXT = 4_000_000  # characters of one conversation
# Around what the assistant says until the text is finished. In Unicode they are no characters.
BEGIN, END = "\ufdd0", "\ufdd1"
DAY = date(2026, 1, 1)  # what `strftime_now` says
_ANSWER = "forty-two"
SIMPLEST = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _ANSWER}]
_Node = TypeVar("_Node", bound=nodes.Node)


class Rendered(NamedTuple):
    """A conversation as text."""

    text: str
    spans: list[tuple[int, int]]  # first and end character of what the assistant says, in order
    special: Sequence[int] = ()  # first character of each special token that the template writes


class _Generation(Extension):
    """The tag `{% generation %}`."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        return f"{BEGIN}{caller()}{END}"


class _Function:
    """A function that can be called and not be written, because its text would be its address."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __repr__(self) -> NoReturn:
        raise BadTemplate("the chat template writes a function; call it with (), or take it out")


FUNCTIONS = (BuiltinFunctionType, FunctionType, MethodType, BlockReference)


def _with_one_text(value: Any) -> Any:
    """The value in a form whose text is the same in each run."""
    if isinstance(value, Iterator):
        return list(value)
    return _Function(value) if isinstance(value, FUNCTIONS) else value


def _filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose value has one text."""

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        return _with_one_text(function(*args, **kwargs))

    return filtered


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"**"})  # one product of powers can take forever

    def getattr(self, obj: Any, attribute: str) -> Any:
        return _with_one_text(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return _with_one_text(super().getitem(obj, argument))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> NoReturn:  # noqa: ARG002
        raise SecurityError(f"a chat template may not compute {operator}")


class _Raised(jinja2.TemplateError):
    """By the template itself, of a conversation that is not for it."""


def _raise(message: str) -> NoReturn:
    raise _Raised(str(message)[:300])


def _by_chance(*_: Any) -> NoReturn:
    raise BadTemplate(
        "the chat template draws by chance (random), and runs would differ; remove it"
    )


def _environment() -> jinja2.Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters = {name: _filter(it) for name, it in environment.filters.items()}
    environment.filters |= {"tojson": tojson, "random": _by_chance}
    environment.globals = {"dict": dict, "namespace": Namespace}
    environment.globals |= {"range": _Function(safe_range), "raise_exception": _Function(_raise)}
    environment.globals["strftime_now"] = _Function(DAY.strftime)
    return environment


def check(template: str) -> None:
    """Raises BadTemplate for a template that is not Jinja or has no `{% generation %}`."""
    if not any(
        isinstance(call.call.node, nodes.ExtensionAttribute)
        for call in _find(template, nodes.CallBlock)
        if isinstance(call.call, nodes.Call)
    ):
        raise BadTemplate(
            "the chat template has no {% generation %} tag, so that no token would be trained "
            "on; write {% generation %} before what the assistant says and "
            "{% endgeneration %} after it"
        )


def with_tokens(template: str, texts: Mapping[str, str]) -> str:
    """The template with the texts of special tokens ({"eos_token": "</s>"}) that it names and does
    not set. So it writes the same wherever it is used. Raises BadTemplate."""
    found = _find(template, nodes.Name)
    named = {one.name for one in found} - {one.name for one in found if one.ctx == "store"}
    lines = [
        f"{{% set {name} = {json.dumps(text, ensure_ascii=False)} %}}\n"
        for name, text in sorted(texts.items())
        if name in named
    ]
    return "".join([*lines, template])


def _find(template: str, kind: type[_Node]) -> list[_Node]:
    """All nodes of this kind. Only reads the template: even compiling would compute constants,
    however large. Raises BadTemplate."""
    try:
        return list(_environment().parse(template).find_all(kind))
    except jinja2.TemplateSyntaxError as error:
        raise BadTemplate(
            f"line {error.lineno} of the chat template is not Jinja: {error.message}; repair it"
        ) from error
    except RecursionError as error:
        raise BadTemplate("the chat template is nested too deeply; make it flatter") from error
    except Exception as error:  # such as a number with too many digits
        raise BadTemplate(f"the chat template is not Jinja: {str(error)[:300]}") from error


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    _find(template, nodes.Name)  # its errors in words
    return _environment().from_string(template)


def rendered(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Any] | None = None,
    add_generation_prompt: bool = False,
    special: Sequence[str] = (),
) -> Rendered:
    """The conversation as text, with the beginning of the assistant's next turn if asked for.
    Templates see `messages`, `tools`, `add_generation_prompt`, and `eos_token` and `bos_token`,
    empty unless they were added (`with_tokens`). `special` are the names of special tokens: where
    messages or tools have one, it is no token. Raises BadTemplate."""
    found = _unmarked(_written(template, messages, tools, add_generation_prompt), special)
    if special_names.BREAK in found.text:
        raise BadTemplate("a conversation has U+FDD2, which is no character; take it out")
    check_whole(found.text, messages, tools, knows="tools" in _names(template))
    said = [[*messages], tools]
    if not special or (broken := special_names.broken(said, special)) == said:
        return found
    of, about = broken
    apart = _unmarked(_written(template, of, about, add_generation_prompt), special)
    if apart[:2] != found[:2]:
        raise BadTemplate(
            "a conversation has the name of a special token, and the template decides or changes "
            "something by it, so that it cannot be told from the token; take it out of the "
            "conversation"
        )
    return apart


@lru_cache(maxsize=8)
def _names(template: str) -> frozenset[str]:
    return frozenset(one.name for one in _find(template, nodes.Name))


def _written(
    template: str, messages: Sequence[Any], tools: Sequence[Any] | None, add_generation_prompt: bool
) -> str:
    """What the template writes, with the marks. Raises BadTemplate."""
    given = {
        "messages": [*map(message_of, messages)],
        **{"tools": tools, "documents": None, "add_generation_prompt": add_generation_prompt},
        **{"eos_token": "", "bos_token": ""},
    }
    parts, size = list[str](), 0
    try:
        for part in _compiled(template).generate(**given):
            parts.append(part)
            if (size := size + len(part)) > MAX_TEXT:
                raise BadTemplate(
                    f"the chat template writes more than {MAX_TEXT:,} characters for one "
                    "conversation; shorten the conversation, or the template"
                )
    except BadTemplate:
        raise
    except SecurityError as error:
        raise BadTemplate(f"the chat template reaches too far: {error}; take it out") from error
    except SyntaxError as error:  # of what Jinja makes of it
        raise BadTemplate(f"the chat template cannot be compiled: {error.msg}") from error
    except (jinja2.TemplateError, TypeError, ValueError, KeyError, OverflowError) as error:
        raise BadTemplate(f"the chat template fails: {str(error)[:300]}") from error
    except Exception as error:
        raise BadTemplate(f"the chat template fails: {type(error).__name__}") from error
    return "".join(parts)


def tried(template: str) -> None:
    """Raises BadTemplate for a template that cannot write the simplest conversations, unless it
    refuses them itself. Runs it."""
    for messages, prompt in ((SIMPLEST[:1], True), (SIMPLEST, False)):
        try:
            rendered(template, messages, add_generation_prompt=prompt)
        except BadTemplate as error:
            if not isinstance(error.__cause__, _Raised):
                raise


def end_of_turn(render: Callable[..., Rendered]) -> str | None:
    """What a template writes after the words of the assistant, such as `<|im_end|>`: a model that
    learned it ends its answers so. None if it writes nothing or only white space, which answers
    also contain. `render` is called as `rendered` with its template. Raises BadTemplate."""
    text, spans, _ = render(SIMPLEST, None)
    if (begin := text.rfind(_ANSWER)) < 0:
        return None
    end = next((end for _, end in spans if end > begin), len(text))
    found = text[begin + len(_ANSWER) : end]
    return found.rstrip() or None


def _unmarked(text: str, special: Sequence[str]) -> Rendered:
    """Without the marks. Raises BadTemplate if they are not in pairs."""
    clean, spans, size, begun = list[str](), list[tuple[int, int]](), 0, None
    for piece in re.split(f"([{BEGIN}{END}])", text):
        if piece not in (BEGIN, END):
            clean.append(piece)
            size += len(piece) - piece.count(special_names.BREAK)
        elif (piece == BEGIN) is (begun is None):
            if begun is not None:
                spans.append((begun, size))
            begun = size if piece == BEGIN else None
        else:
            raise BadTemplate(
                "a conversation has U+FDD0 or U+FDD1, which are no characters, or {% generation %} "
                "tags are inside each other; take them out"
            )
    broken = "".join(clean)
    text = broken.replace(special_names.BREAK, "")
    return Rendered(text, spans, special_names.places(broken, special))

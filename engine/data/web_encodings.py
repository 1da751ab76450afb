"""The text in the bytes of a page of the web, by the labels and fallbacks of WHATWG's Encoding
Standard (https://encoding.spec.whatwg.org): in these encodings browsers read what pages call
latin-1, gb2312 or tis-620."""

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress

# Where the standard's encoding has more characters than Python's codec of the same name.
_WIDER = {"gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"}
_WIDER |= {"iso8859-11": "cp874", "iso2022_jp": "iso2022_jp_ext"}
_DECLARED = re.compile(
    rb"<(?:meta[^>]{0,200}?charset|\?xml[^>]{0,100}?encoding)\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.I)
_OTHERS = re.compile(r"iso-?2022|hz|utf-?(7|32)|cp\d|johab", re.I)  # not in the standard
# ISO 2022 writes other scripts in the bytes of ASCII, so that it is valid UTF-8.
_ISO_2022 = re.compile(rb"\x1b(?:\$[@B]|\([IJ]|(\$\)C))")
_HEAD = 4096  # bytes in which a page declares its encoding
STRAY = 0.05  # the share of what is not ASCII that may be damaged


def decoded(data: bytes, kind: str = "", html: bool = True) -> str | None:
    """The text in these bytes, by its byte order mark, as UTF-8 if it is, by what the Content-Type
    `kind` and the page declare, and by what a detector says; what cannot be read of it is U+FFFD.
    Only `html` declares and is guessed at. None if no encoding reads nearly all of it."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if data.startswith(mark):
            return _nearly(data[len(mark) :], name)
    if escape := _ISO_2022.search(data):
        guess = "iso2022_kr" if escape[1] else "iso2022_jp_ext"
        if (text := _nearly(data, guess)) is not None:
            return text
    declared = list(_declared(data, kind)) if html else []
    first = [name for name in declared[:1] if _is_in_ascii(name, data)]
    for name, lost in [*((name, 1) for name in first), ("utf-8", 0), *((n, 1) for n in declared)]:
        if (text := _nearly(data, name, lost)) is not None:
            return text
    return _nearly(data, _detected(data)) if html else None


def _declared(data: bytes, kind: str) -> Iterator[str]:
    """The codecs that are declared, the most important first."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    for found in (_CHARSET.search(kind), _DECLARED.search(data[:_HEAD])):
        if found:
            label = found[1] if isinstance(found[1], str) else found[1].decode()
            name = map_encoding_to_html5(label, fallback_utf8=False)
            if name or _OTHERS.match(label):
                with suppress(LookupError):
                    yield _WIDER.get(name := codecs.lookup(name or label).name, name)


def _is_in_ascii(name: str, data: bytes) -> bool:
    """Whether this is an encoding whose bytes may be valid UTF-8 and mean something else."""
    return name.startswith(("iso2022", "hz", "utf-7")) or (name.startswith("utf-16") and 0 in data)


def _detected(data: bytes) -> str:
    from resiliparse.parse.encoding import detect_encoding

    name = detect_encoding(data) or "utf-8"
    return _WIDER.get(name, name)


def _nearly(data: bytes, name: str, lost: int = 0) -> str | None:
    """The text in this encoding; None if more than a share of STRAY is damaged, and more than so
    many characters are lost."""
    with suppress(UnicodeError):
        return data.decode(name)
    text = data.decode(name, "replace")
    damaged = text.count("\ufffd")
    if damaged > lost and damaged > STRAY * sum(letter > "\x7f" for letter in text):
        return None
    return text

"""The gold of the extraction bench: what it takes from a source, and how it compares words."""

from functools import partial

import pytest

from tests.bench.extracting import measured, overlap, words
from tests.bench.extraction_gold import LeftOut, asciidoc, markdown, rest, titles_of

SPHINX = """
.. _begin:

:mod:`shop` --- Sells
=====================

.. module:: shop
.. index:: single: goods
.. comment

See :func:`shop.buy`, :class:`~shop.Cart`, :ref:`end`, :pep:`8` and ``x = 1`` [#n]_.

.. class:: Cart(size=1, *, \\
                full=False)
   :noindex:

   Holds.

   .. method:: Cart.add(*item*)

   .. versionadded:: 3.1

.. deprecated-removed:: 3.4 3.8
   Use *none*.

.. code-block:: python
   :caption: none

   a = 1

.. _end:

The end
-------

=====  ====
A      B
=====  ====
1      2
=====  ====

.. [#n] A note.
"""


def test_restructured_text_gives_what_sphinx_writes() -> None:
    text = partial(rest, sphinx=True)(SPHINX, titles_of({"shop": SPHINX}))
    assert " ".join(text.split()) == (
        "shop --- Sells See shop.buy(), Cart, The end, PEP 8 and x = 1 1. "
        "class shop.Cart(size=1, *, full=False) Holds. Cart.add(*item*) New in version 3.1. "
        "Deprecated since version 3.4, will be removed in version 3.8: Use none. a = 1 "
        "The end A B 1 2 1 A note."
    )


@pytest.mark.parametrize("name", ["include:: a.txt", "toctree::", "automodule:: a"])
def test_a_source_that_takes_text_from_elsewhere_has_no_gold(name: str) -> None:
    with pytest.raises(LeftOut, match=f"from elsewhere: {name.partition(':')[0]}"):
        rest(f"text\n\n.. {name}\n", {})
    with pytest.raises(LeftOut):
        asciidoc("include::a.txt[]\n", {})


def test_asciidoc_and_markdown_lose_their_marks() -> None:
    source = (
        "NAME\n----\n// none\n[[a]]\n*bold* 'soft' `a_b` linkgit:git-add[1]\n\n"
        "--all::\n\tx\n----\ny\n----"
    )
    text = asciidoc(source, {})
    assert " ".join(text.split()) == "NAME bold soft a_b git-add(1) --all x y"
    source = (
        "# A\n\n*b* `c_d` [e](f.html)\n\n<!-- g -->\n\n```js\nh;\n```\n\n"
        "| i | j |\n|---|---|\n| k | |"
    )
    assert " ".join(markdown(source, {}).split()) == "A b c_d e h; i j k"


def test_words_are_what_white_space_separates() -> None:
    assert words("“One” — two’s f(x) = 3¶") == ['"one"', "two's", "f(x)", "3¶"]
    assert overlap("aab", "abc") == (pytest.approx(2 / 3),) * 3
    assert overlap("", "a") == (0, 0, 0)
    f1, precision, recall, pairs, runs = measured("a b c", "a c b d")
    assert (precision, recall, pairs) == (1, 0.75, 0)
    assert f1 == runs == pytest.approx(6 / 7)

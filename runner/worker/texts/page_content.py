"""Which part of a web page is its content. The rules go by elements of HTML, by roles of ARIA and
by how much of an element is links; none knows a site, a generator, an id or a class."""

from runner.worker.texts.page_tree import Node, tags

LANDMARKS = frozenset(
    ("navigation", "banner", "contentinfo", "search", "menu", "menubar", "toolbar", "tablist")
)
GROUPS = tags("ul ol dl menu table div section aside details center header footer form fieldset")
LONG = 60  # characters outside of links with which a text is content
SHORT = 300  # characters of a group of which letters and digits count
LOCAL = 0.8  # the share of characters in links into the page that makes a table of contents
LINKED = 0.6  # the share of characters in links that makes a group navigation
MAIN = 250  # characters with which a main element is believed


def content(body: Node) -> Node:
    """The element with the page's content, without what else is in it. Changes the tree."""
    main = _main(body)
    _prune(main or body, main is not None)
    return main or body


def _main(body: Node) -> Node | None:
    """The main element, by tag or by role; a single article where there is none; None if there is
    neither, or next to nothing is in it."""
    found: list[Node] = []
    articles: list[Node] = []
    below = [body]
    while below:
        node = below.pop()
        if node.tag == "main" or (
            "role=" in node.attributes and node.attribute("role").lower() == "main"
        ):
            found.append(node)
        elif node.tag == "article":
            articles.append(node)
        else:
            below.extend(child for child in node.children if type(child) is Node and child.chars)
    if not found and len(articles) == 1:
        found = articles
    largest = max(found, key=lambda node: node.chars, default=None)
    return largest if largest and largest.chars >= min(MAIN, body.chars / 2) else None


def _prune(node: Node, inside: bool) -> bool:
    """Remove what is no content from the element; `inside` the main element links are content, too.
    Returns whether there is a text of LONG characters in it. Corrects the counts."""
    kept: list[Node | str] = []
    chars = linked = local = own = 0
    long = False
    for child in node.children:
        if type(child) is str:
            kept.append(child)
            own += len(child) - child.count(" ") - child.count("\n")
            continue
        assert isinstance(child, Node)
        tag = child.tag
        if tag == "a":
            if "#" in child.attributes and _is_mark(child):
                continue
            kept.append(child)
            chars, linked, local = chars + child.chars, linked + child.linked, local + child.local
            continue
        if tag == "nav" or (
            "role=" in child.attributes and (child.attribute("role").lower() in LANDMARKS)
        ):
            continue
        if not inside and (tag == "footer" or (tag == "header" and not _has_title(child))):
            continue
        group = tag in GROUPS and child.linked > 0
        if group and child.local >= LOCAL * child.chars:
            continue  # a table of contents of this page
        dense = group and not inside and _is_dense(child)
        of_it = _prune(child, inside) if child.children else False
        if dense and not of_it and not _is_prose(child):
            continue  # navigation
        long = long or of_it
        kept.append(child)
        chars, linked, local = chars + child.chars, linked + child.linked, local + child.local
    node.children = kept
    node.chars, node.linked, node.local = chars + own, linked, local
    return long or node.chars - linked >= LONG


def _is_mark(link: Node) -> bool:
    """Whether a link has nothing to read: the sign behind a heading that points to it."""
    return link.chars <= 2 and not any(letter.isalnum() for letter in words(link))


def _is_dense(group: Node) -> bool:
    """Whether most of a group is links. Of a short one, only letters and digits count: brackets
    and bars between links are often outside of them."""
    if group.linked >= LINKED * group.chars or group.chars > SHORT:
        return group.linked >= LINKED * group.chars
    letters = sum(map(str.isalnum, words(group)))
    return letters > 0 and _letters_in_links(group) >= LINKED * letters


def _letters_in_links(node: Node) -> int:
    if node.tag == "a":
        return sum(map(str.isalnum, words(node))) if "href=" in node.attributes else 0
    return sum(_letters_in_links(child) for child in node.children if isinstance(child, Node))


def _is_prose(group: Node) -> bool:
    """Whether a group has paragraphs, and no list or table that links would be in."""
    below = [group]
    names = set()
    while below:
        node = below.pop()
        names.add(node.tag)
        below += [child for child in node.children if isinstance(child, Node)]
    return "p" in names and names.isdisjoint(("ul", "ol", "table"))


def _has_title(node: Node) -> bool:
    return node.tag == "h1" or any(
        _has_title(child) for child in node.children if isinstance(child, Node)
    )


def words(node: Node) -> str:
    """All text of an element, as it is."""
    return "".join(
        child if isinstance(child, str) else "\n" if child.tag == "br" else words(child)
        for child in node.children
    )

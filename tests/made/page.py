"""A parser of HTML pages for tests."""

from html.parser import HTMLParser

VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """The tags of a page with their attributes, and its texts; tags must be nested correctly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, tag: str, **equal: str) -> list[dict[str, str | None]]:
        found = [attributes for name, attributes in self.tags if name == tag]
        return [attributes for attributes in found if equal.items() <= attributes.items()]

    def values(self, name: str) -> list[str | None]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]

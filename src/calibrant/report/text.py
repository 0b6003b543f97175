"""A table as text, in columns that fit a terminal."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len

from calibrant.errors import printable
from calibrant.report.tables import MISSING, Block, Entry, Group, Table

GAP = 3  # letters between groups


def as_text(table: Table, width: int = 100) -> str:
    parts = [text_block(part, table) for block in table.blocks for part in narrowed(block, table, width)]
    notes = [textwrap.fill(note, width, subsequent_indent="  ") for note in table.legend(best="•", paper="paper")]
    return "\n\n".join([table.title, *parts, "\n".join(notes)]) + "\n"


def narrowed(block: Block, table: Table, width: int) -> list[Block]:
    """The block in parts of as many groups as so many letters allow, at least one."""
    texts = [text_group(group, columns, table) for group, columns in parted(block)]
    labels = max(map(cell_len, [table.corner, *(line.label for line in block.lines)]))
    parts: list[list[int]] = []
    room = 0
    for place, text in enumerate(texts):
        size = cell_len(text[0]) + GAP
        if not parts or size > room:
            parts.append([])
            room = width - labels
        parts[-1].append(place)
        room -= size
    return [part_of(block, range(part[0], part[-1] + 1)) for part in parts]


def parted(block: Block) -> Iterator[tuple[Group, list[tuple[Entry, ...]]]]:
    """Each group with its columns."""
    columns = iter(zip(*(line.entries for line in block.lines), strict=True))
    for group in block.groups:
        yield group, [next(columns) for _ in group.headings]


def part_of(block: Block, groups: range) -> Block:
    first, last = (sum(len(group.headings) for group in block.groups[:end]) for end in (groups.start, groups.stop))
    lines = tuple(replace(line, entries=line.entries[first:last]) for line in block.lines)
    return Block(block.groups[groups.start : groups.stop], lines)


def text_block(block: Block, table: Table) -> str:
    labels = pad(["", table.corner, *(printable(line.label) for line in block.lines)], str.ljust)
    groups = [text_group(group, columns, table) for group, columns in parted(block)]
    titles, headings, *lines = [(" " * GAP).join(line) for line in zip(labels, *groups, strict=True)]
    rule = "─" * cell_len(headings)
    return "\n".join(line.rstrip() for line in (titles, headings, rule, *lines))


def text_group(group: Group, columns: Sequence[Sequence[Entry]], table: Table) -> list[str]:
    """The title, the headings and the lines of a group, all of one width."""
    texts = []
    for heading, entries in zip(group.headings, columns, strict=True):
        numbers = pad(["↓" * entry.improved + entry.text for entry in entries], str.rjust)
        marks = pad(["•" * entry.is_best + entry.signs for entry in entries], str.ljust)
        column = pad([heading, *map("".join, zip(numbers, marks, strict=True))], str.rjust)
        if table.against_paper:
            beside = pad(["paper", *(entry.published_text or MISSING for entry in entries)], str.rjust)
            column = list(map(" ".join, zip(column, beside, strict=True)))
        texts.append(column)
    return pad([printable(group.title), *map("  ".join, zip(*texts, strict=True))], str.ljust)


def pad(texts: Sequence[str], side: Callable[[str, int], str]) -> list[str]:
    """The texts in one width, as a terminal counts it."""
    width = max(map(cell_len, texts))
    return [side(text, width - cell_len(text) + len(text)) for text in texts]

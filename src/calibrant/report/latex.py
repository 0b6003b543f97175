"""A table as LaTeX that compiles with booktabs alone, whatever letters a user has written."""

from calibrant.errors import printable
from calibrant.report.tables import Block, Entry, Table
from calibrant.report.text import narrowed

LATEX_WIDTH = 92  # letters that fit a page of article in \\scriptsize
LATEX = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "[": "{[}",  # a bare one behind a line break is its option
    "±": r"$\pm$",
    "–": "--",
    "†": r"$\dagger$",
    "↓": r"$\downarrow$",
    "*": "$*$",
} | {letter: f"\\{letter}" for letter in "{}$&#%_"}


def latex(text: str) -> str:
    """Any text, for pdfLaTeX without packages: letters that it does not know are named by their number."""
    return "".join(LATEX.get(letter, latex_letter(letter)) for letter in printable(text))


def latex_letter(letter: str) -> str:
    accented = "À" <= letter <= "ÿ" and letter not in "ÐðÞþ×÷"
    return letter if letter.isascii() or accented else f"{{[}}U+{ord(letter):04X}]"


def as_latex(table: Table) -> str:
    r"""A float, of the appendix one for each block; the document needs \usepackage{booktabs}."""
    blocks = ["\n\\par\\medskip\n".join(latex_parts(block, table)) for block in table.blocks]
    if table.name != "appendix":
        blocks = ["\n\\par\\medskip\n".join(blocks)]
    title = table.title.partition(": ")[2]  # LaTeX numbers its tables itself
    notes = " ".join(map(latex, table.legend(best="Bold", paper="In brackets")))
    floats = [
        rf"""\begin{{table}}[htb]
\centering\scriptsize\setlength{{\tabcolsep}}{{2pt}}
\caption{{{latex(title[0].upper() + title[1:])}}}
{block}
\par\medskip\footnotesize
{notes}
\end{{table}}
"""
        for block in blocks
    ]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(floats)


def latex_parts(block: Block, table: Table) -> list[str]:
    return [latex_block(part, table.corner) for part in narrowed(block, table, LATEX_WIDTH)]


def latex_block(block: Block, corner: str) -> str:
    titles, rules, at = [""], [], 2
    for group in block.groups:
        size = len(group.headings)
        titles.append(rf"\multicolumn{{{size}}}{{c}}{{{latex(group.title)}}}")
        rules.append(rf"\cmidrule(lr){{{at}-{at + size - 1}}}")
        at += size
    head = [corner, *(heading for group in block.groups for heading in group.headings)]
    body = [[latex(line.label), *map(latex_entry, line.entries)] for line in block.lines]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (at - 2)}}}",
            rf"\toprule {' & '.join(titles)} \\",
            "".join(rules),
            rf"{' & '.join(map(latex, head))} \\ \midrule",
            *(rf"{' & '.join(line)} \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def latex_entry(entry: Entry) -> str:
    text = latex(entry.text)
    mean, *error = text.partition("$")
    text = "".join([rf"\textbf{{{mean}}}", *error]) if entry.is_best else text
    beside = rf" {{\tiny({latex(entry.published_text)})}}" if entry.published_text else ""
    return latex("↓" * entry.improved) + text + latex(entry.signs) + beside

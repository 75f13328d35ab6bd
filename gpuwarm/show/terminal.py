"""How anything is printed for a person: no wider than can be read, numbers beside their units, lines to copy whole."""

import re

from rich.console import Console, RenderableType
from rich.text import Text

MAX_COLUMNS = 100  # longer lines are hard to read
# Stands for a space where no line may break; rich breaks lines at no-break spaces, too.
_GLUE = "\ue000"
# The space between a number and its unit, where no line should break.
UNITS = re.compile(r"(?<=\d) (?=(?:ns|us|ms|s|%|MHz|W|C|starts?|iterations?)\b|%)")


def say(what: RenderableType, *, err: bool = False) -> None:
    """Print to stdout or stderr: plain where that is no terminal or NO_COLOR is set."""
    console = Console(highlight=False, emoji=False, markup=False, stderr=err)
    console.width = min(console.width, MAX_COLUMNS)
    with console.capture() as printed:
        console.print(what, crop=False)
    text = printed.get().replace(_GLUE, " ")
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)


def prose(text: str, style: str = "") -> Text:
    """Text whose numbers stay on one line with their units."""
    return Text(UNITS.sub(_GLUE, text), style)


def to_copy(text: str, style: str = "") -> Text:
    """Text whose lines are never broken, so that they can be copied; not inside a table, which would cut them."""
    return Text(text, style, no_wrap=True, overflow="ignore")

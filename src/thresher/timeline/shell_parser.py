"""Parse a shell command to find the files that it writes.

The result is the simple commands, each with its words, redirections and heredoc. Variables, patterns and substitutions
are not expanded; a word that contains one is marked, since it may expand to anything. Quoted text remains text, even if
it looks like a command.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 100_000
"""Maximum number of characters of a command. Longer commands are not parsed."""

_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\r]+|\\\n)
    | (?P<comment>(?<![^\s;&|(])\#[^\n]*)
    | (?P<here><<-?[ \t]*(?P<quote>['"\\]?)(?P<mark>[\w.-]+)['"]?)
    | (?P<out>(?:\d*|&)(?:>>|>\||>)(?:&\d*-?)?|\d*<<<|\d*<&?)
    | (?P<end>\n|&&|\|\||;;|\|&|[;&|(){}](?=\s|$|[;&|()])|[;&|()])
    | (?P<word>(?:
          [^\s;&|()<>'"\\`$\#]+ | \\. | \# | '[^']*'
        | "\$\(cat[ ]<<-?[ ]*['"]?(?P<inner>\w+)['"]?\n(?s:.{0,10000}?)\n[ \t]*(?P=inner)\n[ \t]*\)"
        | "(?:\\.|[^"\\])*" | \$\((?:[^()]|\([^()]*\))*\) | \$\{[^}]*\} | \$ | `[^`]*`
      )+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"|([^\\'"]+)""", re.DOTALL)
_ESCAPE = re.compile(r'\\([\\"$`\n])')
_EXPANSION = re.compile(r"(?<!\\)[$`]")


class ShellWord(NamedTuple):
    """A word without its quotes."""

    text: str
    is_literal: bool
    """True if the shell expands nothing in the word."""
    is_pattern: bool = False
    """True if the word contains wildcards."""


class SimpleCommand(NamedTuple):
    """One program with its arguments."""

    words: tuple[ShellWord, ...]
    outputs: tuple[tuple[str, ShellWord], ...]
    """Output redirections: `>` or `>>`, and the file."""
    heredoc: str | None
    """The text of the command's heredoc."""
    is_heredoc_literal: bool
    operator: str
    """The operator before the command: `&&`, `||`, `|`, `;`, or empty."""


class _CommandBuilder:
    def __init__(self, joint: str) -> None:
        self.words: list[ShellWord] = []
        self.outputs: list[tuple[str, ShellWord]] = []
        self.heredoc: str | None = None
        self.is_heredoc_literal = True
        self.operator = joint
        self.redirect = ""

    def add_word(self, word: ShellWord) -> None:
        if not self.redirect:
            self.words.append(word)
        elif ">" in self.redirect:
            self.outputs.append((">>" if ">>" in self.redirect else ">", word))
        self.redirect = ""

    def build(self) -> SimpleCommand:
        return SimpleCommand(
            tuple(self.words), tuple(self.outputs), self.heredoc, self.is_heredoc_literal, self.operator
        )


def parse_simple_commands(command: str) -> Iterator[SimpleCommand]:
    """Yield the simple commands of a text, in order."""
    if len(command) > LONGEST:
        return
    builder = _CommandBuilder("")
    waiting: list[tuple[_CommandBuilder, str, bool]] = []
    position = 0
    while token := _TOKEN.match(command, position):
        position = token.end()
        if token["here"]:
            waiting.append((builder, token["mark"], not token["quote"]))
        elif token["out"]:
            # `2>&1` and input redirections write no file.
            builder.redirect = "" if re.search(r"&\d|&-", token["out"]) else token["out"]
        elif token["word"]:
            builder.add_word(_word(token["word"]))
        elif token["end"]:
            if token["end"] == "\n" and waiting:
                position = _attach_heredocs(command, position, waiting)
            if builder.words or builder.outputs:
                yield builder.build()
            builder = _CommandBuilder(token["end"])
    if builder.words or builder.outputs:
        yield builder.build()


def _attach_heredocs(command: str, position: int, waiting: list[tuple[_CommandBuilder, str, bool]]) -> int:
    """Set the heredoc of each pending command and return the position after them."""
    for building, mark, expands in waiting:
        stop = re.compile(rf"^\t*{re.escape(mark)}[ \t]*$", re.MULTILINE).search(command, position)
        body = command[position : stop.start() if stop else len(command)]
        building.heredoc = body
        building.is_heredoc_literal = not expands or not re.search(r"[$`\\]", body)
        position = min(stop.end() + 1, len(command)) if stop else len(command)
    waiting.clear()
    return position


def _word(raw: str) -> ShellWord:
    text: list[str] = []
    sure, pattern = True, False
    for escaped, single, double, plain in _PIECE.findall(raw):
        if double:
            sure = sure and not _EXPANSION.search(double)
            text.append(_ESCAPE.sub(r"\1", double))
        elif plain:
            sure = sure and "$" not in plain and "`" not in plain
            pattern = pattern or any(sign in plain for sign in "*?[{")
            text.append(plain)
        else:
            text.append(single or (escaped if escaped != "\n" else ""))
    return ShellWord("".join(text), sure, pattern)

"""Set a value in JSON or TOML text, or remove it; the rest of the text stays byte for byte."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SERVER_NAME = "thresher"
"""Name of the server entry in every client's configuration."""
_JSON_DECODER = json.JSONDecoder()


class _Member(NamedTuple):
    """A member of a JSON object, with the offsets of its key, its value and its end."""

    key: str
    start: int
    value: int
    end: int


def _skip_whitespace(text: str, at: int) -> int:
    while text[at].isspace():
        at += 1
    return at


def _parse_members(text: str, brace: int) -> tuple[list[_Member], int]:
    """Return the members of the JSON object that opens at `brace`, and the offset of the closing brace."""
    members: list[_Member] = []
    at = _skip_whitespace(text, brace + 1)
    while text[at] != "}":
        key, colon = _JSON_DECODER.raw_decode(text, at)
        value = _skip_whitespace(text, _skip_whitespace(text, colon) + 1)
        _, end = _JSON_DECODER.raw_decode(text, value)
        members.append(_Member(key, at, value, end))
        at = _skip_whitespace(text, end)
        at = _skip_whitespace(text, at + 1) if text[at] == "," else at
    return members, at


def _find_member(text: str, brace: int, key: str) -> _Member | None:
    """Return the last member with the name `key`: JSON parsers use the last one."""
    return next((member for member in reversed(_parse_members(text, brace)[0]) if member.key == key), None)


def set_json_entry(text: str, key: str, entry: Mapping[str, Any]) -> str:
    """Add or replace the server entry in the JSON object `key`."""
    return set_json_value(text, (key, SERVER_NAME), entry)


def set_json_value(text: str, path: Sequence[str], value: Any) -> str:
    """Add or replace the value at a path of keys; missing objects are added, too."""
    if not text.strip():
        return json.dumps(_nest(path, value), indent=2, ensure_ascii=False) + "\n"
    brace = text.index("{")
    for depth, key in enumerate(path, 1):
        member = _find_member(text, brace, key)
        if member is None:
            return _add_json_member(text, brace, key, _nest(path[depth:], value))
        if depth == len(path):
            return text[: member.value] + _json_value(text, _indent(text, member.start), value) + text[member.end :]
        brace = member.value
    return text


def _nest(path: Sequence[str], value: Any) -> Any:
    return {path[0]: _nest(path[1:], value)} if path else value


def _add_json_member(text: str, brace: int, name: str, value: Any) -> str:
    """Add a member after the last one, with the same indentation."""
    members, close = _parse_members(text, brace)
    last = members[-1] if members else None
    lines = last is not None and "\n" in text[brace : last.start]
    lead = _indent(text, last.start) if last and lines else _indent(text, brace) + _indent_unit(text)
    piece = f"{_newline(text)}{lead}{json.dumps(name)}: {_json_value(text, lead, value)}"
    if last:
        return f"{text[: last.end]},{piece}{text[last.end :]}"
    return text[: brace + 1] + piece + _newline(text) + _indent(text, brace) + text[close:]


def _json_value(text: str, lead: str, value: Any) -> str:
    return json.dumps(value, indent=_indent_unit(text), ensure_ascii=False).replace("\n", _newline(text) + lead)


def _indent(text: str, at: int) -> str:
    """Return the whitespace at the start of the line that contains `at`."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent_unit(text: str) -> str:
    """Return one level of indentation of the text."""
    indented = re.search(r"\n([ \t]+)\S", text)
    return indented[1] if indented else "  "


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def remove_json_entry(text: str, key: str) -> str:
    """Remove the server entry from the JSON object `key`; remove that object if it is then empty."""
    return remove_json_value(text, (key, SERVER_NAME))


def remove_json_value(text: str, path: Sequence[str]) -> str:
    """Remove the value at a path of keys, and the objects on that path that are then empty."""
    braces = [text.index("{")]
    for key in path[:-1]:
        member = _find_member(text, braces[-1], key)
        if member is None:
            return text
        braces.append(member.value)
    for brace, key in zip(reversed(braces), reversed(path), strict=True):
        text = _remove_json_member(text, brace, key)
        if _parse_members(text, brace)[0]:
            break
    return text


def _remove_json_member(text: str, brace: int, key: str) -> str:
    members, close = _parse_members(text, brace)
    at = max(number for number, member in enumerate(members) if member.key == key)
    if len(members) == 1:
        return text[: brace + 1] + text[close:]
    if at:
        return text[: members[at - 1].end] + text[members[at].end :]
    return text[: members[0].start] + text[members[1].start :]


def set_toml_entry(text: str, key: str, entry: Mapping[str, Any]) -> str:
    """Add or replace the server entry in the TOML table `key`."""
    current = tomllib.loads(text).get(key, {}).get(SERVER_NAME)
    rows = [f"{name} = {_toml_value(value)}" for name, value in entry.items() if (current or {}).get(name) != value]
    lines, newline = text.split("\n"), _newline(text)
    block = None if current is None else _find_toml_table(lines, key)
    if block is None:
        gap = (newline if text.strip() else "") + ("" if text.endswith("\n") or not text else newline)
        return text + gap + newline.join([f"[{key}.{SERVER_NAME}]", *rows, ""])
    start, end = block
    changed = re.compile(rf"\s*({'|'.join(row.partition(' ')[0] for row in rows)})\s*=")
    kept = [line for line in lines[start + 1 : end] if not changed.match(line)]
    return "\n".join([*lines[: start + 1], *(row + newline[:-1] for row in rows), *kept, *lines[end:]])


def _toml_value(value: Any) -> str:
    """Encode a value; strings, lists and booleans have the same syntax as in JSON."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(name)} = {_toml_value(item)}' for name, item in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _find_toml_table(lines: list[str], key: str) -> tuple[int, int] | None:
    """Return the line range of the entry and its subtables. Comments at its end belong to the next table."""
    name = rf"\s*\[\s*{key}\s*\.\s*(?:{SERVER_NAME}|\"{SERVER_NAME}\"|'{SERVER_NAME}')\s*"
    start = next((at for at, line in enumerate(lines) if re.match(rf"{name}\]", line)), None)
    if start is None:
        return None
    others = (at for at in range(start + 1, len(lines)) if re.match(rf"(?!{name}\.)\s*\[", lines[at]))
    end = next(others, len(lines))
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    return start, end


def remove_toml_entry(text: str, key: str) -> str:
    """Remove the server entry from the TOML table `key`."""
    lines = text.split("\n")
    start, end = _find_toml_table(lines, key) or (0, 0)
    start -= bool(start and not lines[start - 1].strip())  # also remove the empty line before the entry
    return "\n".join(lines[:start] + lines[end:])


def set_toml_value(text: str, path: Sequence[str], value: Any) -> str:
    """Add a top-level value before everything else, where no table can claim it."""
    return f"{path[0]} = {_toml_value(value)}{_newline(text)}{text}"


def remove_toml_value(text: str, path: Sequence[str]) -> str:
    """Remove a top-level value."""
    head, bracket, rest = re.match(r"(?s)(.*?)((?:^|(?<=\n))[ \t]*\[|\Z)(.*)", text).groups()  # type: ignore[union-attr]
    return re.sub(rf"(?m)^[ \t]*{re.escape(path[0])}[ \t]*=[^\n]*(?:\n|\Z)", "", head, count=1) + bracket + rest

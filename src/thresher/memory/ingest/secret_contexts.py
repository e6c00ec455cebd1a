r"""Places that show that a value is a secret: assignments, options, headers, cookies, URLs, tables, elements.

A context starts at its pivot, one character that is rare in texts, and has a regex for what is before it (lookbehinds
only) and one for what is after it. The regexes reject most positions; `find` then checks the name and the value.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from thresher.memory.ingest.secret_names import NAME_ENDINGS, NAME_LAST, classify_name, find_name_kind
from thresher.memory.ingest.secret_patterns import PEM_PATTERN
from thresher.memory.ingest.secret_values import EXAMPLE_VALUE, USUAL_PASSWORDS, is_password, is_random, is_uuid


class SecretMatch(NamedTuple):
    """Span and kind of a secret."""

    start: int
    end: int
    kind: str


class SecretContext(NamedTuple):
    """A place where secrets are found."""

    pivot: str
    before: str
    """Lookbehinds; the pivot itself is their last character."""
    after: str
    find: Callable[[str, re.Match[str]], Iterable[SecretMatch]]
    literal: str = ""
    """Text that each match contains, to skip other texts fast; empty if there is only the pivot."""


_ENDING = f"(?i:{NAME_ENDINGS})"
_OPENING = r"(?:[brufBRUF]{1,2}(?=[\"']))?+\\{0,3}+[\"'`]?+"
_DIGIT_SOON = r"(?=[A-Za-z_+/.~!@#%^&*?$,;-]{0,60}+[0-9])[0-9A-Za-z_+/.~!@#%^&*?$,;-]{6}"
"""Most secrets have a digit near their beginning, and most words of code do not."""
_SCHEMES = r"(?:[Bb]earer|[Bb]asic|[Tt]oken|[Aa]pi-?[Kk]ey|Bot|Key|SSWS|Splunk)\s"
_SCHEME = re.compile(
    rf"(?i:basic\s{{1,2}}(?P<basic>[a-z0-9+/]{{8,1000}}={{0,2}})|{_SCHEMES}{{1,2}}(?P<key>[\w+/=.~:-]{{8,4000}}))"
)
_UNQUOTED = re.compile(r"(?:[\w+/=.~!@#%^*?:$-]|&(?![\w.-]{1,40}=)|,(?=[^\s\w])){1,4000}")
_QUOTED = {quote: re.compile(rf"[^{quote}\s\\]{{1,4000}}") for quote in "\"'`"}
_ID_KINDS = ("token", "credential")
"""Kinds whose names also belong to ids, so that a UUID is not a secret."""
_COOKIE = re.compile(r"([\w.%-]{1,80})=([\w%+/=.~:-]{16,4000})")
_SHORT_OPTION_COMMAND = re.compile(
    r"(?:mysql\w*|mariadb\w*|sshpass|redis-cli|login|ldap\w+|smbclient|7z|unzip|zip|mongo\w*|sqlcmd|wget|htpasswd)"
    r"\b[^\n|;&]{0,150}\Z"
)
_NAME_OF_LISTED = re.compile(
    r"\b(?i:name|key)\\{0,3}[\"']?\s?[:=]\s?\\{0,3}[\"']?([\w.-]{1,60})\\{0,3}[\"']?,?\s{0,40}"
    r"\\{0,3}[\"']?value\\{0,3}[\"']?\Z"
)
_NAME_OF_VALUE = re.compile(r"\s{1,4}(?i:value)\Z")
_NAME_OF_STRING = re.compile(r"</key>\s{0,20}<string\Z")


def _find_value(text: str, start: int) -> tuple[int, int, bool] | None:
    """Return the span of the value that starts here, and whether quotes enclose it."""
    quote = text[start - 1]
    if quote in _QUOTED:
        match = _QUOTED[quote].match(text, start)
        if match and text[match.end() : match.end() + 1] in (quote, "\\"):
            return start, match.end(), True
    match = _UNQUOTED.match(text, start)
    if match is None or text.startswith(("(", "[", "{", "<"), match.end()):
        return None
    return start, start + len(match.group().rstrip(".,?:")), False


def _check_value(text: str, start: int, kind: str, *, literal: bool = False) -> Iterator[SecretMatch]:
    """Yield the value that starts here if it can be a secret of this kind."""
    found = _find_value(text, start)
    if found is None:
        return
    start, end, is_quoted = found
    value = text[start:end]
    if is_uuid(value):
        is_secret = kind not in _ID_KINDS
    elif kind == "password":
        is_secret = is_random(value) or is_password(value, literal=literal or is_quoted)
    else:
        is_secret = not value.startswith("$") and is_random(value)
    if is_secret:
        yield SecretMatch(start, end, kind)


def _find_assigned(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `name = value`, also in JSON, YAML, headers and queries."""
    kind = find_name_kind(text, match.start())
    if kind is None:
        return
    start = match.end()
    if kind == "cookie":
        yield from _find_cookies(text, match)
    elif kind == "authorization":
        yield from _find_authorization(text, start)
    else:
        is_setting = text[match.start() - 1].isupper() and start == match.start() + 1
        yield from _check_value(text, start, kind, literal=is_setting)


def _find_authorization(text: str, start: int) -> Iterator[SecretMatch]:
    match = _SCHEME.match(text, start)
    if match is None:
        yield from _check_value(text, start, "authorization")
    elif match["basic"]:
        if _is_basic(match["basic"]):
            yield SecretMatch(*match.span("basic"), "basic-credentials")
    elif is_random(match["key"]) or is_password(match["key"], literal=False):
        yield SecretMatch(*match.span("key"), "bearer-token")


def _is_basic(value: str) -> bool:
    try:
        return b":" in b64decode(value, validate=True)
    except Base64Error:
        return False


def _find_attribute(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `name="password" value="…"`."""
    name_end = _NAME_OF_VALUE.search(text, max(0, match.start() - 12), match.start())
    kind = find_name_kind(text, name_end.start()) if name_end else None
    if kind:
        yield from _check_value(text, match.end(), kind)


def _find_listed(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `{"name": "PASSWORD", "value": "…"}`, also in YAML."""
    before = _NAME_OF_LISTED.search(text, max(0, match.start() - 160), match.start())
    if before and (kind := classify_name(before[1])):
        yield from _check_value(text, match.end(), kind, literal=True)


def _find_element(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `<password>…</password>`, and `<key>password</key><string>…</string>`."""
    end = match.start()
    if name_end := _NAME_OF_STRING.search(text, max(0, end - 40), end):
        end = name_end.start()
    kind = find_name_kind(text, end)
    if kind:
        value_end = text.find("<", match.end(), match.end() + 4000)
        value = text[match.end() : value_end].strip()
        is_secret = is_random(value) or (kind == "password" and is_password(value, literal=True))
        if value_end > 0 and is_secret and not re.search(r"\s", value):
            yield SecretMatch(match.end(), value_end, kind)


def _find_cell(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    kind = find_name_kind(text, match.start())
    if kind:
        yield from _check_value(text, match.end(), kind)


def _find_option(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find the value of a long option: `--password …`."""
    if kind := classify_name(match["option_name"]):
        yield from _check_value(text, match.end(), kind, literal=True)


def _find_short_option(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find the value of a short option of a command that is known: `mysql -p…`."""
    if _SHORT_OPTION_COMMAND.search(text, max(0, match.start() - 200), match.start()):
        yield from _check_value(text, match.end(), "password", literal=True)


def _find_user(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `-u name:password`."""
    yield from _check_value(text, match.end(), "password", literal=True)


def _find_private_key(_text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    yield SecretMatch(match.start() - 4, match.end(), "private-key")


def _find_cookies(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    start = match.end()
    end = text.find("\n", start, start + 4000)
    for cookie in _COOKIE.finditer(text, start, end if end > 0 else start + 4000):
        if is_uuid(cookie[2]) or is_random(cookie[2]):
            yield SecretMatch(*cookie.span(2), "cookie")


def _find_url_credentials(_text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `//name:password@` and `//token@`."""
    password, user = match["url_password"], match["url_user"]
    if password:
        if password.lower() not in USUAL_PASSWORDS and not EXAMPLE_VALUE.search(password):
            yield SecretMatch(*match.span("url_password"), "password")
    elif is_random(user):
        yield SecretMatch(*match.span("url_user"), "token")


def _find_spoken(text: str, match: re.Match[str]) -> Iterator[SecretMatch]:
    """Find `password …` without a sign between, as in `.netrc`, and `the password is …`."""
    yield from _check_value(text, match.end(), "password", literal="login" in text[match.start() - 80 : match.start()])


def _after_name(pivot: str, *fillers: str) -> str:
    """Return lookbehinds for the end of a secret's name, then nothing or one of the fillers, then the pivot."""
    sign = re.escape(pivot)
    groups = [f"(?<={NAME_LAST}{sign})(?<={_ENDING}{sign})"]
    for last, group in groupby(sorted(fillers, key=_last_class), key=_last_class):
        checks = (f"(?<={NAME_LAST}{filler}{sign})(?<={_ENDING}{filler}{sign})" for filler in group)
        groups.append(f"(?<={last}{sign})(?:{'|'.join(checks)})")
    return f"(?<=[A-Za-z\"'`*\\] ]{sign})(?:{groups[0]}|(?<=[\"'` \\]*]{sign})(?:{'|'.join(groups[1:])}))"


def _last_class(filler: str) -> str:
    return filler[filler.rindex("[") :]


_ASSIGNED = rf"[=>:]?\s{{0,2}}+{_OPENING}(?={_DIGIT_SOON}|{_SCHEMES}|[A-Za-z_.-]{{1,40}}+=)"
_QUOTE = r"[\"'`]"
_SIGNS = (
    _QUOTE,
    rf"\\{_QUOTE}",
    rf"\\\\\\{_QUOTE}",
    r"[*][*]",
    "[ ]",
    rf"{_QUOTE}[ ]",
    rf"{_QUOTE}[\]]",
    rf"{_QUOTE}[\]][ ]",
    r"[*][*][ ]",
)
"""What may be between a name and its sign: quotes, escaped quotes, bold marks, the bracket of a subscript."""

GATES = {
    "-": r"(?<=[\s\"'`-]-)",
}
"""Lookbehinds that all contexts of a pivot have in common, to reject positions before the alternatives are tried."""

CONTEXTS = {
    "url": SecretContext(
        ":",
        "",
        r"//(?:[^\s/:@\"'<>]{0,64}+:(?P<url_password>[^\s/@\"'`<>\[\]{}$]{3,2000}+)"
        r"|(?P<url_user>[0-9A-Za-z_.~%-]{20,200}+))@",
        _find_url_credentials,
    ),
    "named": SecretContext(":", _after_name(":", *_SIGNS), _ASSIGNED, _find_assigned),
    "assigned": SecretContext("=", _after_name("=", *_SIGNS), _ASSIGNED, _find_assigned),
    "aligned_setting": SecretContext("=", r"(?<=[ ]{2}=)", _ASSIGNED, _find_assigned),
    "aligned_field": SecretContext(":", r"(?<=[ ]{2}:)", _ASSIGNED, _find_assigned),
    "listed": SecretContext(
        ":", r"(?:(?<=value:)|(?<=value[\"']:)|(?<=value\\[\"']:))", rf"\s?{_OPENING}(?={_DIGIT_SOON})", _find_listed
    ),
    "attribute": SecretContext("=", r"(?<=\s(?i:value)=)", rf"{_OPENING}(?={_DIGIT_SOON})", _find_attribute),
    "element": SecretContext(
        ">",
        rf"(?={_DIGIT_SOON})(?:(?<={NAME_LAST}>)(?<={_ENDING}>)|(?<={_ENDING}[\"']>)|(?<=<string>))",
        "",
        _find_element,
    ),
    "cell": SecretContext(
        "|",
        rf"(?=\s?[`*]{{0,2}}{_DIGIT_SOON})" + _after_name("|", "[ ]", "[`*][ ]", "[*][*][ ]"),
        r"\s?[`*]{0,2}",
        _find_cell,
    ),
    "option": SecretContext(
        "-",
        rf"(?=[A-Za-z])(?=[0-9A-Za-z_-]{{3,40}}+(?<={_ENDING}))",
        rf"(?P<option_name>[0-9A-Za-z_-]++)(?:[ =]{{1,2}}|[\"'],\s?)[\"']?(?={_DIGIT_SOON})",
        _find_option,
    ),
    "cookie_option": SecretContext("-", r"(?=[bc])", r"(?:(?<=--)cookie|b)[ =][\"']?", _find_cookies),
    "user": SecretContext(
        "-",
        r"(?=[up])(?:(?<=--)(?:proxy-)?user|u)",
        r"[ =\"',]{0,4}[^\s:\"'/]{1,64}+:(?=[^\s\"'`:]{3})",
        _find_user,
    ),
    "short_option": SecretContext("-", r"(?<=\s-)[paPw]", rf" ?[\"']?(?={_DIGIT_SOON})", _find_short_option),
    "private_key": SecretContext("-", r"(?=BEGIN)(?<=-----)", PEM_PATTERN.removeprefix("-----"), _find_private_key),
    "spoken": SecretContext(
        "p", "", rf"assword[\"'`]?\s{{1,2}}(?:(?:is|was|to|as):?\s)?[\"'`]?(?={_DIGIT_SOON})", _find_spoken, "password"
    ),
}
"""Contexts by name; a name is a group of the regex."""

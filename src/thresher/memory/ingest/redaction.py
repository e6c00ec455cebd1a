"""Redact secrets in text: replace passwords, keys and tokens with a mark that names the kind.

Every text in the search index is redacted, and so is output unless the user asks to reveal secrets. The originals stay
unchanged in the archive. The token patterns follow the default rules of gitleaks
(github.com/gitleaks/gitleaks), with some newer providers. Two mistakes are possible: a secret remains, or a hash or
name is redacted and can no longer be found. So a pattern alone is enough only if it belongs to one provider. Otherwise,
a value must be assigned to a name such as password, key or token, and must look random. Digests, ids, paths and
placeholders remain.

The module processes gigabytes, so a regex should be tried at few positions only. `re` scans fast for one literal
character and slowly for a class. So the patterns are grouped by the last character of their prefix (the `_` of
`ghp_`). Each group has one regex that starts with that character and checks the rest of the prefix by lookbehind.
Assignments are matched from their `=` or `:` in the same way. Nested repetitions are bounded or possessive, so the time
is linear.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from math import log2
from typing import NamedTuple

MASK = "[redacted {kind}]"


class SecretPattern(NamedTuple):
    """Token pattern of one provider."""

    kind: str
    leads: str
    """Prefixes, separated by spaces. The last character of each should be rare in texts."""
    tail: str
    """Regex for the text after the prefix."""
    head: str = ""
    """Regex for the part of the token before the prefix."""


_PEM = (
    r"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    # An encrypted key has header fields before its first line, and tools may insert text between lines.
    r"(?:(?!-----)[\s\S]){0,200}?[A-Za-z0-9+/]{24,}+(?:[^-]{0,40}?[A-Za-z0-9+/]{24,}+)*+=*+"
    r"(?:[^-]{0,80}-----END[ A-Z0-9]{0,40}-----|(?:\s|\\[nr]){1,4}[A-Za-z0-9+/]{1,23}+=*+)?+"
)

SECRET_PATTERNS = (
    SecretPattern("aws-access-key", "AKIA ASIA ABIA ACCA", r"[A-Z2-7]{16}(?![A-Za-z0-9])"),
    SecretPattern("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[0-9A-Za-z]{36,255}"),
    SecretPattern("github-token", "github_pat_", r"[\w]{60,255}"),
    SecretPattern(
        "gitlab-token",
        "glpat- gldt- glrt- glft- glsoat- glffct- glimt- glagent- gloas-",
        r"[\w-]{20,300}(?:\.[\w]{9})?",
    ),
    SecretPattern("gitlab-token", "glptt-", r"[0-9a-f]{40}"),
    SecretPattern("gitlab-token", "glcbt-", r"[0-9A-Za-z]{1,5}_[\w-]{20,300}"),
    SecretPattern("slack-token", "xoxb- xoxp- xoxo- xoxs- xoxa- xoxr- xoxe- xoxc- xoxd-", r"[\w%-]{16,400}"),
    SecretPattern("slack-token", "xapp-", r"\d-[A-Z0-9]{1,40}-\d{1,20}-[a-z0-9]{16,200}"),
    SecretPattern(
        "slack-webhook", ":", r"//hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/]{40,80}", head="https?"
    ),
    SecretPattern("stripe-key", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", r"[0-9A-Za-z]{16,255}"),
    SecretPattern("webhook-secret", "whsec_", r"[0-9A-Za-z+/=]{24,200}"),
    SecretPattern("anthropic-key", "sk-ant-", r"(?:[a-z]{2,8}\d{2}-)?[\w-]{40,200}"),
    SecretPattern("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", r"[\w-]{40,300}"),
    SecretPattern("openrouter-key", "sk-or-", r"v1-[0-9a-f]{40,100}"),
    SecretPattern("openai-key", "sk-", r"[0-9A-Za-z]{32,100}(?![\w-])"),
    SecretPattern("google-api-key", "A", r"Iza[\w-]{35}(?![\w-])"),
    SecretPattern("google-oauth", "GOCSPX-", r"[\w-]{28}"),
    SecretPattern("google-oauth", "ya29.", r"[\w-]{30,1000}"),
    SecretPattern("npm-token", "npm_", r"[0-9A-Za-z]{36}(?![0-9A-Za-z])"),
    SecretPattern("pypi-token", "pypi-", r"AgE[\w-]{50,1000}"),
    SecretPattern("huggingface-token", "hf_ api_org_", r"[0-9A-Za-z]{30,60}(?![\w])"),
    SecretPattern("sendgrid-key", "SG.", r"[\w-]{16,32}\.[\w-]{32,64}"),
    SecretPattern("telegram-token", ":", r"AA[\w-]{33}(?![\w-])", head=r"[0-9]{8,10}"),
    SecretPattern(
        "discord-token",
        ".",
        # The lookahead comes first: most periods end a sentence, and the lookbehind is slow.
        r"(?=[\w-]{6}\.)(?:(?<=[MNO].{23}\.)|(?<=[MNO].{25}\.))[\w-]{6}\.[\w-]{27,38}(?![\w.-])",
        head=r"[\w-]{24,26}",
    ),
    SecretPattern("discord-webhook", ":", r"//discord\.com/api/webhooks/\d{17,20}/[\w-]{60,80}", head="https?"),
    SecretPattern("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"[0-9a-f]{64}"),
    SecretPattern("azure-secret", "~", r"[\w.~-]{31,34}(?![\w.~-])", head=r"\w{3}\dQ"),
    SecretPattern("heroku-key", "HRKU-", r"AA[\w-]{58}"),
    SecretPattern("linear-key", "lin_api_ lin_oauth_", r"[0-9A-Za-z]{40,64}"),
    SecretPattern("notion-token", "ntn_", r"[0-9A-Za-z]{40,50}"),
    SecretPattern("notion-token", "secret_", r"[0-9A-Za-z]{43}(?![\w])"),
    SecretPattern("sentry-token", "sntryu_", r"[0-9a-f]{64}"),
    SecretPattern("sentry-token", "sntrys_", r"eyJ[\w+/=-]{60,500}"),
    SecretPattern("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32}"),
    SecretPattern("square-token", "sq0atp- sq0csp-", r"[\w-]{22,60}"),
    SecretPattern("square-token", "EAAA", r"[\w-]{60}(?![\w+/=-])"),
    SecretPattern("supabase-key", "sbp_", r"[0-9a-f]{40}"),
    SecretPattern("supabase-key", "sb_secret_", r"[\w-]{20,60}"),
    SecretPattern("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"[0-9A-Za-z]{24,80}"),
    SecretPattern("grafana-token", "glsa_", r"[0-9A-Za-z]{32}_[0-9A-Fa-f]{8}"),
    SecretPattern("grafana-token", "glc_", r"[0-9A-Za-z+/]{32,400}={0,3}"),
    SecretPattern("docker-token", "dckr_pat_", r"[\w-]{27}"),
    SecretPattern("groq-key", "gsk_", r"[0-9A-Za-z]{48,60}"),
    SecretPattern("xai-key", "xai-", r"[0-9A-Za-z]{70,90}"),
    SecretPattern("perplexity-key", "pplx-", r"[0-9A-Za-z]{48}"),
    SecretPattern("nvidia-key", "nvapi-", r"[\w-]{60,70}"),
    SecretPattern("replicate-token", "r8_", r"[0-9A-Za-z]{37}"),
    SecretPattern("vault-token", "hvs. hvb.", r"[\w-]{24,300}"),
    SecretPattern("atlassian-token", "A", r"TATT3[\w=-]{180,200}"),
    SecretPattern("jwt", "eyJ", r"[\w-]{10,2000}\.eyJ[\w-]{10,6000}(?:\.[\w-]{1,2000})?"),
)
"""Token patterns by provider. If several match, the first one wins."""

KEYS = (
    ("heroku-key", r"heroku[\w-]{0,20}(?:key|token)"),
    ("password", r"passw(?:or)?d|passphrase|passcode|pwd"),
    ("private-key", r"(?:private|signing|encryption)[_-]?key"),
    ("access-key", r"(?:access|account|shared)[_-]?key"),
    ("api-key", r"(?:api|app|auth|service|admin|master)[_-]?key"),
    ("secret", r"secret(?:[_-]?key(?:[_-]?base)?|[_-]?access[_-]?key)?"),
    ("token", r"(?<!page)(?<!page[_-])(?<!csrf)(?<!csrf[_-])(?<!public)(?<!public[_-])(?<!next)(?<!next[_-])token"),
    ("credential", r"credentials?"),
    ("provider-key", r"(?:datadog|dd|cloudflare|cf|heroku|twilio|discord|azure|stripe|sentry|openai)[\w-]{0,20}key"),
    ("authorization", r"authorization"),
)
"""Kinds of secrets, each with a case-insensitive regex that matches the end of a secret's name: `db_password`."""

EXAMPLE_VALUE = re.compile(
    r"(?i)x{4}|\*{3}|\.{3}|0{6}|example|placeholder|your|change|dummy|fake|mock|test|sample|redact|"
    r"password|passwd|secret|token|apikey|api[_-]key|credential|process\.env|environ|getenv|undefined|1234567"
)
"""Regex for words that identify an example value."""

USUAL_PASSWORDS = ("pass", "pwd", "postgres", "root", "admin", "user", "guest", "mysql")
"""Passwords that examples use in URLs."""

MIN_SECRET_LENGTH = 10
"""Minimum length of a secret value."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_NAME = re.compile(
    "(?i:(?:" + "|".join(f"({pattern})" for _, pattern in KEYS) + r")[_-]?[0-9]?)(?:\\*[\"'])?\]?\s{0,2}(?:: ?str ?)?\Z"
)
_SCHEME = re.compile(r"(?i:(?:bearer|token)\s{1,2}([\w+/=.~-]{16,4000})|basic\s{1,2}([a-z0-9+/]{8,1000}={0,2}))")
_VALUE = re.compile(r"[\w+/=.~!@#%^&*?-]{10,1000}")
_ENDINGS = "(?i:ken|ret|ord|key|swd|pwd|ial|als|ase|ode|ion)"
_LAST = "[ADELORSWadelorsw][DELNSTYdelnsty]"
"""Possible last two letters of a secret name, to reject most names with one check."""


class SecretMatch(NamedTuple):
    """Span and kind of a secret."""

    start: int
    end: int
    kind: str


def redact_and_count(text: str) -> tuple[str, int]:
    """Replace the secrets in a text with marks, and count them; without secrets, return the same object."""
    count = 0
    # A token directly after another one matches only when a mark, which ends with `]`, has replaced the first one.
    while secrets := _find_secrets(text):
        text, replaced = _replace_matches(text, secrets)
        count += replaced
    return text, count


def redact(text: str) -> str:
    """Replace the secrets in a text with marks."""
    return redact_and_count(text)[0]


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Return whether a value with this name may be a secret, so that redaction needs the name."""
    return _NAME.search(name[-60:]) is not None


def _replace_matches(text: str, secrets: list[SecretMatch]) -> tuple[str, int]:
    pieces: list[str] = []
    position = count = 0
    for start, end, kind in sorted(secrets, key=lambda secret: (secret.start, -secret.end)):
        if start >= position:
            pieces += (text[position:start], MASK.format(kind=kind))
            position, count = end, count + 1
    return "".join([*pieces, text[position:]]), count


def _find_secrets(text: str) -> list[SecretMatch]:
    secrets: list[SecretMatch] = []
    for pivot, pattern, rows in _PATTERNS:
        # Most texts have no match, and the `in` check is the fastest way to skip them.
        if pivot in text and (match := pattern.search(text)):
            secrets += _check_matches(text, pattern.finditer(text, match.start()), rows)
    if "-----BEGIN" in text:
        secrets += [SecretMatch(*match.span(), "private-key") for match in _PRIVATE_KEY.finditer(text)]
    return secrets


def _check_matches(
    text: str, matches: Iterator[re.Match[str]], rows: list[tuple[str, SecretPattern]]
) -> Iterator[SecretMatch]:
    for match in matches:
        index = (match.lastindex or 1) - 1
        if index < len(rows):
            secret = _match_token(text, match, *rows[index])
        elif match.lastgroup == "value":
            secret = _match_assignment(text, match)
        else:
            secret = _match_url_password(match)
        if secret:
            yield secret


def _match_token(text: str, match: re.Match[str], lead: str, shape: SecretPattern) -> SecretMatch | None:
    start, end = match.start() + 1 - len(lead), match.end()
    if shape.head:
        before = _run_before(text, start)
        if not re.fullmatch(shape.head, text[before:start]):
            return None
        start = before
    body = text[match.start() + 1 : end]
    is_example = len(set(body)) < 4 or "EXAMPLE" in body or "xxxx" in body.lower()
    return None if is_example else SecretMatch(start, end, shape.kind)


def _run_before(text: str, end: int) -> int:
    """Return the start of the run of letters, digits, `_` and `-` that ends here."""
    start = end
    while start > max(0, end - 2010) and (text[start - 1].isalnum() or text[start - 1] in "_-"):
        start -= 1
    return start


def _match_url_password(match: re.Match[str]) -> SecretMatch | None:
    password = match.group("password")
    if password.lower() in USUAL_PASSWORDS or EXAMPLE_VALUE.search(password):
        return None
    return SecretMatch(*match.span("password"), "password")


def _match_assignment(text: str, match: re.Match[str]) -> SecretMatch | None:
    name = _NAME.search(text, max(0, match.start() - 60), match.start())
    if not name:
        return None
    kind = KEYS[(name.lastindex or 1) - 1][0]
    start = match.start("value")
    if kind == "authorization":
        return _match_authorization(text, start)
    value = _VALUE.match(text, start)
    if not value or text.startswith(("(", "[", "{", "<", "$"), value.end()):
        return None
    body = value.group().rstrip(".,?")
    # Older Heroku keys are UUIDs; any other UUID is not a secret.
    is_secret = kind == "heroku-key" if _UUID.fullmatch(body) else _is_random(body)
    return SecretMatch(start, start + len(body), kind) if is_secret else None


def _match_authorization(text: str, start: int) -> SecretMatch | None:
    match = _SCHEME.match(text, start)
    if not match:
        return None
    if match.group(1):
        return SecretMatch(*match.span(1), "bearer-token") if _is_random(match.group(1)) else None
    try:
        plain = b64decode(match.group(2), validate=True)
    except Base64Error:
        return None
    return SecretMatch(*match.span(2), "basic-credentials") if b":" in plain else None


def _is_random(value: str) -> bool:
    """Return whether a value looks generated: many short runs of letters or digits, and high entropy."""
    if len(value) < MIN_SECRET_LENGTH or EXAMPLE_VALUE.search(value):
        return False
    pieces = _PIECE.findall(value)
    letters = sum(map(str.isalpha, value))
    digits = sum(map(str.isdigit, value))
    if letters < 3 or 4 * len(pieces) < letters + digits:
        return False
    if sum(map(str.isdigit, pieces)) < (2 if len(value) < 20 else 1):  # for example `Uint8Array`
        return False
    enough = 3.0 if _HEX.fullmatch(value) else min(3.5, 0.85 * log2(len(value)))
    return _entropy(value) >= enough


def _entropy(value: str) -> float:
    size = len(value)
    return -sum(count / size * log2(count / size) for count in Counter(value).values())


def _group_by_pivot() -> dict[str, list[tuple[str, SecretPattern]]]:
    rows: dict[str, list[tuple[str, SecretPattern]]] = {"=": []}
    for shape in SECRET_PATTERNS:
        for lead in shape.leads.split():
            rows.setdefault(lead[-1], []).append((lead, shape))
    # Long prefixes come first, as in the regex.
    return {pivot: sorted(group, key=lambda row: len(row[0]) <= 2) for pivot, group in rows.items()}


def _pattern(pivot: str, rows: list[tuple[str, SecretPattern]]) -> re.Pattern[str]:
    guarded = [_tail_pattern(lead, shape) for lead, shape in rows if len(lead) > 2]
    parts = [_tail_pattern(lead, shape) for lead, shape in rows if len(lead) <= 2]
    if guarded:
        parts.insert(0, f"{_guard([lead for lead, _ in rows if len(lead) > 2])}(?:{'|'.join(guarded)})")
    if pivot == ":":
        parts.append(r"//[^\s/:@\"'<>]{0,64}+:(?P<password>[^\s/@\"'`<>\[\]{}$]{3,128}+)@")
    if pivot in "=:":
        parts.append(_assignment(pivot))
    return re.compile(re.escape(pivot) + f"(?:{'|'.join(parts)})")


def _guard(leads: list[str]) -> str:
    """Return a lookbehind for the last three characters of all prefixes, to reject most positions early."""
    letters = ("".join(sorted({lead[offset] for lead in leads})) for offset in (-3, -2, -1))
    behind = "".join(f"[{re.escape(characters)}]" for characters in letters)
    return f"(?<={behind})(?=[0-9A-Za-z_%+/-]{{16}})"


def _tail_pattern(lead: str, shape: SecretPattern) -> str:
    # In `re`, `\w` for all scripts is slower than an ASCII class.
    tail = shape.tail.replace(r"\w", "0-9A-Za-z_")
    before = "" if shape.head else rf"(?<={re.escape(lead)})(?<![0-9A-Za-z]{re.escape(lead)})"
    return f"{before}({tail})"


def _assignment(pivot: str) -> str:
    near, *far = (
        f"(?<={_LAST}{filler}{pivot})(?<={_ENDINGS}{filler}{pivot})"
        for filler in ("", r"[\"' ]", r"[\"'\\][\"' \]]", r"[\"']\] ")
    )
    name = rf"(?:{near}|(?<=[\"' \]]{pivot})(?:{'|'.join(far)}))"
    scheme = r"(?:[Bb]earer|[Bb]asic|[Tt]oken)\s"
    value = r"(?=[A-Za-z_+/.~!@#%^&*?-]{0,60}+[0-9])[0-9A-Za-z_+/.~!@#%^&*?-]{10}"
    return rf"{name}[=>]?\s{{0,2}}+\\?+[\"'`]?+(?P<value>{value}|{scheme})"


_PRIVATE_KEY = re.compile(_PEM)
_ROWS = _group_by_pivot()
_PATTERNS = tuple((pivot, _pattern(pivot, rows), rows) for pivot, rows in _ROWS.items())

"""Names of secrets: the words before a `=`, a `:` or a space that say that a value is a secret."""

import re
from functools import lru_cache

NAME_SUFFIXES = (
    ("password", ("password", "passwd", "passphrase", "passcode", "passwort", "pwd", "dbpass", "userpass")),
    ("private-key", ("privatekey", "signingkey", "encryptionkey")),
    ("secret", ("secret", "secretkey", "secretkeybase", "secretaccesskey")),
    ("access-key", ("accesskey", "accountkey", "sharedkey")),
    ("api-key", ("apikey", "appkey", "authkey", "servicekey", "adminkey", "masterkey", "licensekey", "licencekey")),
    ("token", ("token",)),
    ("credential", ("credential", "credentials")),
    ("authorization", ("authorization",)),
    ("cookie", ("cookie",)),
)
"""Kinds of secrets, each with the endings of its names, in lower case and without `_`, `-` and spaces."""

PUBLIC_SUFFIXES = ("pagetoken", "csrftoken", "publictoken", "nexttoken")
"""Endings of names whose values are no secrets."""

PROVIDER_WORDS = (
    "datadog",
    "cloudflare",
    "twilio",
    "discord",
    "azure",
    "stripe",
    "sentry",
    "openai",
)
"""Names of providers: a name that has one of them and ends with `key` is a secret's name."""

NAME_ENDINGS = "ken|ret|ord|key|swd|pwd|ial|als|ase|ode|ion|ass|ort|kie"
"""Possible last three letters of a secret's name."""
NAME_LAST = "[ADEIOLRSUWadeiolrsuw][DELNSTYdelnsty]"
"""Possible last two letters of a secret's name, to reject most names with one check."""

MAX_NAME_LENGTH = 60
_JUNK = " \t\"'`*|\\]"
_TYPE = re.compile(r"(?::|\|)?\s?(?:str|string|String|null|None)\Z")
_NUMBER = re.compile(r"[_-]?[0-9]\Z")
_SEPARATORS = str.maketrans("", "", " _-")
_LONE_PASS = re.compile(r"(?:\A|[^a-z])pass\Z")


def find_name_kind(text: str, end: int) -> str | None:
    """Return the kind of the secret's name that ends here, or None."""
    name = text[max(0, end - MAX_NAME_LENGTH) : end].rstrip(_JUNK)
    return classify_name(name)


@lru_cache(maxsize=4096)
def classify_name(name: str) -> str | None:
    """Return the kind of a secret's name, or None; only the end of the name counts."""
    name = _TYPE.sub("", name[-MAX_NAME_LENGTH:]).rstrip(_JUNK)
    name = _NUMBER.sub("", name).lower()
    joined = name.translate(_SEPARATORS)
    if joined.endswith(("key", "token")) and "heroku" in joined[-30:]:
        return "heroku-key"
    if joined.endswith("key") and any(word in joined[-30:] for word in PROVIDER_WORDS):
        return "provider-key"
    for kind, suffixes in NAME_SUFFIXES:
        if joined.endswith(suffixes):
            return None if joined.endswith(PUBLIC_SUFFIXES) else kind
    return "password" if _LONE_PASS.search(name) else None


def is_secret_name(name: str) -> bool:
    """Return whether a value with this name may be a secret, so that redaction needs the name."""
    return classify_name(name) is not None

"""Tables of programs in shell commands: readers, writers, formatters, and programs that start others.

A program that is in no table may write any file in its arguments. Add a program by adding a word to a table.
"""

import re


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


READ_ONLY_PROGRAMS = _names(
    "cat ls ll grep egrep fgrep rg ag head tail wc diff echo printf pwd which whereis type test [ [[ sort uniq "
    "cut awk gawk tr jq yq less more file stat du df tree true false sleep export set unset source . ps kill gh "
    "glab docker docker-compose kubectl open bat nl md5sum md5 shasum sha1sum sha256sum cksum basename dirname "
    "realpath readlink date env history man seq od xxd hexdump strings column comm cmp mkdir rmdir touch chmod "
    "chown lsof nc ssh psql redis-cli mktemp popd exit return read wait jobs trap ulimit local declare eval "
    "pgrep pkill lsblk uname whoami hostname id ping pytest jest vitest mocha ava tsc tsgo mypy pyright flake8 "
    "pylint eslint golangci-lint shellcheck hadolint coverage playwright cypress pip pip3 brew apt apt-get "
    "conda gem bd tmux screen launchctl systemctl tput clear fold fmt expand paste rev tac join split sqlite3 "
    "ngrok node-gyp zcat gunzip base64 openssl dig host"
)
"""Programs that change no content of the files in their arguments. A redirection may still write to a file."""

KEYWORDS = _names("do then else elif if while until ! { } ( ) && || done fi esac for case in function")
PREFIXES = _names("sudo time nohup env command builtin exec stdbuf nice doas rtk")
WRAPPERS = frozenset(
    tuple(words.split(" "))
    for words in (
        *("npx", "bunx", "pnpx", "uvx", "timeout", "pipx run", "uv run", "poetry run", "pdm run", "rye run"),
        *("pnpm exec", "npm exec", "yarn exec", "bundle exec", "hatch run"),
    )
)
"""Programs that only start the program that follows them."""

INTERPRETERS = _names("python node ruby php bash sh zsh fish deno bun ts-node tsx Rscript lua osascript")

FORMATTER_OPTIONS: dict[str, tuple[str, ...] | None] = {
    "prettier": ("--write", "-w"),
    "black": None,
    "isort": None,
    "ruff": ("format", "--fix"),
    "autopep8": ("-i", "--in-place"),
    "yapf": ("-i", "--in-place"),
    "autoflake": ("-i", "--in-place"),
    "gofmt": ("-w",),
    "goimports": ("-w",),
    "gofumpt": ("-w",),
    "rustfmt": None,
    "clang-format": ("-i",),
    "eslint": ("--fix",),
    "biome": ("--write", "--apply", "--fix"),
    "stylelint": ("--fix",),
    "golangci-lint": ("--fix", "fmt"),
    "shfmt": ("-w",),
    "terraform": ("fmt",),
    "rubocop": ("-a", "-A", "--autocorrect"),
    "lint-staged": None,
    "pre-commit": None,
}
"""Programs that rewrite files, and the arguments that make them do so. None means that they always rewrite."""

RUNNERS = _names(
    "npm pnpm yarn bun make mise just task go cargo rake gradle mvn tox nox uv poetry deno composer dotnet mix swift"
)
"""Programs that run project tasks."""

CHANGING_TASK = re.compile(
    r"\b(?:fmt|format|fix|gen|generate|codegen|prettier|write|bump|release|migrate|rewrite|tidy)\b"
    r"|--fix\b|:fix|:write|format:",
    re.IGNORECASE,
)
"""Tasks that probably rewrite files."""

DEPENDENCY_TASKS = _names("i install add remove rm update upgrade get mod lock sync")

_NODE = "package.json package-lock.json pnpm-lock.yaml yarn.lock bun.lock bun.lockb"
MANIFESTS: dict[str, str] = {
    "npm": _NODE,
    "pnpm": _NODE,
    "yarn": _NODE,
    "bun": _NODE,
    "go": "go.mod go.sum",
    "cargo": "Cargo.toml Cargo.lock",
    "uv": "pyproject.toml uv.lock",
    "poetry": "pyproject.toml poetry.lock",
}
"""Files that a program writes when it changes dependencies."""

GIT_ANY_FILE_COMMANDS = re.compile(
    r"(?:pull|merge|rebase|cherry-pick|revert|am|apply|clean|bisect|read-tree|sparse-checkout)\b"
    r"|reset\b.*--(?:hard|keep|merge)|stash(?!\s+(?:list|show|drop|clear))|switch\b(?!\s+-[cC]\s+\S+\s*$)|filter-branch"
)
"""Git commands that may write any file."""

WRITING_CODE = re.compile(
    r"""writ|dump\(|\bopen\([^)]{0,300}["'][rbt]*[wax+]|unlink|rename|remove|copy|move|rmtree|save|sed\s+-|>\s*["'\w./$]"""
    r"""|os\.system|subprocess|exec|truncate|replace_in|fs\.""",
    re.IGNORECASE,
)
"""Patterns that indicate code that writes files."""

REWRITE_OUTPUT = re.compile(
    r"lint-staged|modified by this hook|tasks for staged files|\breformatted\b|\bFixed [1-9]\d* files?\b"
)
"""Output of a task or hook that rewrote files."""

REWRITE_COMMAND_OUTPUT = re.compile(r"^(?:> |\$ |\[[\w:.-]+\] \$ ).*(?:--write\b|--fix\b|-w\b|\bfmt\b)", re.MULTILINE)
"""Command line that a task prints before it runs the command, if the command rewrites files."""

NO_REWRITE_OUTPUT = re.compile(r"\bNo fixes applied\b")


def is_rewrite_reported(output: str) -> bool:
    """Report whether the output of a task indicates that it rewrote files."""
    has_command = REWRITE_COMMAND_OUTPUT.search(output) and not NO_REWRITE_OUTPUT.search(output)
    return bool(REWRITE_OUTPUT.search(output) or has_command)

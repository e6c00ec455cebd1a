"""Type-check a user's script: the README's calls pass, and mistyped keywords are errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
USER_SCRIPT = """
from pathlib import Path

import thresher as th


def remove_long_results(history: th.History) -> list[th.Edit]:
    long = (place for place in history.places.items() if len(th.part_text(history.part(place[1]))) > 9_000)
    return [th.Drop(target, "mine", "too long") for target, _ in long]


def fit_all(path: Path, policy: th.Policy) -> list[th.Session]:
    try:
        every = th.read_all(path)
        return [th.fit(one, policy=[policy, "smart"], budget="60k", exclude_tools=("Edit",)) for one in every]
    except th.BudgetError as error:
        print(error.smallest)
        return []


def heard(event: th.WindowEvent) -> None:
    trigger: th.Trigger = event.trigger
    print(trigger, event.tokens_before)


sessions: list[th.Session] = fit_all(Path("session.jsonl"), remove_long_results)
one: th.Session = th.read("session.jsonl", session="0f3c9a1e")
made: th.Plan = th.plan(one, policy="smart", model="claude-sonnet-4-5", thinking="free")
broken: tuple[th.Violation, ...] = th.check(one.history, "anthropic")
window = th.Window("auto", budget=120_000, ledger=Path("ledger"), on_event=heard)
window = th.Window.load("ledger", budget=120_000)
hits: th.SearchResults = th.Memory().search("rounding", since="7d", require=("jwt",))
texts: list[str] = [part.text for message in one.history for part in message.parts if isinstance(part, th.Text)]
"""
MISTYPED = """
import thresher as th

history = th.History()
th.fit(history, budgt=5)
th.plan(history, exclude_tool=("Edit",))
th.Window(on_evnt=print)
th.Window.load("ledger", budgt=5)
th.Memory().search("x", sinse="7d")
th.Memory(hom="x")
th.read("x", sesion="y")
th.check(history, dialct="anthropic")
th.count(history, modl="x")
th.emit(history, "anthropic", boddy=True)
th.no_such_name
"""


IMPORT = "import thresher as th\n"
_EXAMPLES = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
README_SCRIPT = IMPORT + "\n".join(_EXAMPLES).replace(IMPORT, "")


def run_checker(checker: str, folder: Path, script: str) -> str:
    """Return the checker's report, without this project's configuration."""
    (folder / "script.py").write_text(script)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    programs = Path(sys.executable).parent
    commands = {
        "mypy": [sys.executable, "-m", "mypy", f"--cache-dir={ROOT / '.mypy_cache' / 'user'}", "script.py"],
        "pyright": [str(programs / "basedpyright"), f"--pythonpath={sys.executable}", "script.py"],
    }
    done = subprocess.run(commands[checker], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.parametrize("script", [README_SCRIPT, USER_SCRIPT], ids=["readme", "user"])
def test_a_users_script_passes_a_strict_type_checker(checker: str, script: str, tmp_path: Path) -> None:
    said = run_checker(checker, tmp_path, script)
    assert "Success: no issues" in said or "0 errors" in said, said


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_finds_each_mistyped_keyword(checker: str, tmp_path: Path) -> None:
    said = run_checker(checker, tmp_path, MISTYPED)
    found = {int(line) for line in re.findall(r"script\.py:(\d+)(?::\d+)?.*error", said)}
    calls = {number for number, line in enumerate(MISTYPED.splitlines(), 1) if line.startswith("th.")}
    assert calls <= found, said

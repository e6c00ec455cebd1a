"""The public API, the cost of importing it, and the correctness of the documents."""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Unpack, get_origin

import pytest

import thresher as th
from thresher.budget import PRESETS
from thresher.budget.settings import OPTION_NAMES
from thresher.policies import POLICIES
from thresher.policies.table import policy_options
from thresher.samples import write_samples
from thresher.transcripts.source import SourceFile

ROOT = Path(__file__).parents[1]
EDGES = {"rich", "click", "platformdirs", "backports", "asyncio"}
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def imported_by(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    return {*modules, *(name.partition(".")[0] for name in modules)}


def test_importing_thresher_imports_no_heavy_library() -> None:
    assert not imported_by("import thresher") & EDGES


def test_reading_a_plain_file_imports_neither_heavy_libraries_nor_rules(tmp_path: Path) -> None:
    file = next(path for path in write_samples(tmp_path) if path.suffix == ".jsonl")
    modules = imported_by(f"import thresher; thresher.read({str(file)!r})")
    assert not modules & {*EDGES, "thresher.dialects.rules", "thresher.dialects.repairs"}


def test_importing_the_readers_compiles_no_harness_patterns() -> None:
    assert "thresher.model.harness_text" not in imported_by("import thresher.transcripts")


def test_help_does_not_import_what_only_output_needs() -> None:
    code = "from thresher.cli import cli; cli(['sessions', '--help'], standalone_mode=False)"
    script = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "rich" not in done.stdout.split("MODULES")[1].split()


def test_dir_lists_exactly_the_public_names_and_a_type_checker_sees_the_same() -> None:
    assert dir(th) == sorted(th.__all__)
    tree = ast.parse((ROOT / "src" / "thresher" / "__init__.py").read_text(encoding="utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (node.module, name.name) for node in checked.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert {name for _, name in typed} | {"__version__"} == set(th.__all__)
    assert all(getattr(th, name) is getattr(import_module(module or ""), name) for module, name in typed)


def error_classes(base: type[Exception]) -> set[type[Exception]]:
    return {base}.union(*(error_classes(one) for one in base.__subclasses__()))


def test_functions_errors_and_types_for_users_are_public() -> None:
    functions = "apply check count discover emit fit parse plan read read_all repair restore sniff with_intent"
    types = "Drop Edit History Memory Message Part Plan Policy Replace Session Summarize Truncate Window WindowEvent"
    assert all(getattr(th, name).__doc__ for name in functions.split())
    edges = ("thresher.serve", "thresher.cli")
    errors = {one.__name__ for one in error_classes(th.ThresherError) if not one.__module__.startswith(edges)}
    assert {*functions.split(), *types.split(), *errors} <= {*dir(th)}


def test_the_public_functions_take_no_untyped_keywords() -> None:
    methods = [th.Window.__init__, th.Window.load, th.Memory.__init__, th.Memory.search]
    for function in [*(getattr(th, name) for name in dir(th)), *methods]:
        if inspect.isfunction(function) or inspect.ismethod(function):
            loose = [one for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_KEYWORD]
            assert all(get_origin(one.annotation) is Unpack for one in loose), function


@pytest.mark.parametrize(
    ("function", "wrong", "right"),
    [
        (th.fit, "budgt", "budget"),
        (th.plan, "exclude_tool", "exclude_tools"),
        (th.Window, "on_evnt", "on_event"),
        (th.Window, "exclude_tool", "exclude_tools"),
    ],
)
def test_an_unknown_keyword_gets_a_suggestion(function: Callable[..., object], wrong: str, right: str) -> None:
    given = () if function is th.Window else (th.History(),)
    with pytest.raises(th.OptionError, match=f"`{wrong}`. Did you mean `{right}`"):
        function(*given, **{wrong: 5})


def test_importing_prints_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", "import thresher"], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {path.name: length for path, length in lengths.items() if length > 400} == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_the_python_examples_of_the_documents_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_samples(tmp_path)
    (tmp_path / "session.jsonl").write_bytes(next(path for path in files if path.suffix == ".jsonl").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(example, str(document), "exec"), names)


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_between_the_documents_resolve(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("thresher.formats:Home", "thresher.transcripts:SessionFolder"),
        ("thresher.formats:WireFormat", "thresher.dialects:Dialect"),
        ("thresher.formats:emission", "thresher.dialects:emit_with_losses"),
        ("thresher.summarise:ModelSummariser", "thresher.summarize:ModelSummarizer"),
        ("thresher.window:Pace", "thresher.window:Thresholds"),
        ("thresher.replay:own_way", "thresher.replay:window_strategy"),
    ],
)
def test_an_old_name_works_and_warns(old: str, new: str) -> None:
    (old_module, old_name), (new_module, new_name) = old.split(":"), new.split(":")
    with pytest.warns(DeprecationWarning, match=new_name):
        found = getattr(import_module(old_module), old_name)
    assert found is getattr(import_module(new_module), new_name)


DEPRECATED = (
    "thresher.budget",
    "thresher.edits",
    "thresher.formats",
    "thresher.model",
    "thresher.replay",
    "thresher.store",
    "thresher.summarise",
    "thresher.timeline",
    "thresher.tokens",
    "thresher.window",
)


def test_every_deprecated_name_resolves() -> None:
    for module in map(import_module, DEPRECATED):
        for name in vars(module)["__getattr__"].moved:
            with pytest.warns(DeprecationWarning, match="is deprecated"):
                getattr(module, name)


def test_a_third_party_format_may_use_the_old_methods_of_a_source(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("a line")
    source = SourceFile(tmp_path / "some.txt")
    with pytest.warns(DeprecationWarning, match="report"):
        source.problem("odd", "skipped", 1)  # type: ignore[attr-defined]
    assert [one.line for one in source.problems] == [1]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        source.nothing  # type: ignore[attr-defined] # noqa: B018


def test_the_architecture_page_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src" / "thresher").glob("*/__init__.py")]
    assert [name for name in packages if f"`{name}/`" not in text] == []


def test_the_policies_page_names_every_policy_option_and_preset() -> None:
    text = (ROOT / "docs" / "reference" / "policies.md").read_text(encoding="utf-8")
    for name in POLICIES:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert [option for option in policy_options(name) if f"`{option}" not in row] == []
    assert [name for name in PRESETS if f"`{name}`" not in text and f"| {name}" not in text] == []


def test_the_settings_page_names_every_option_and_threshold() -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    for option in OPTION_NAMES:
        assert f"| `{option}` | `THRESHER_{option.upper()}` |" in text
    for field in fields(th.Thresholds):
        default = "none" if field.default is None else field.default
        assert f"| `{field.name}` | {default} |" in text


def test_messages_refer_to_pages_and_headings_that_exist() -> None:
    references = {
        found
        for path in (ROOT / "src").rglob("*.py")
        for found in re.findall(r"(docs/[\w/-]+\.md)#([\w-]+)", path.read_text(encoding="utf-8"))
    }
    assert references
    for page, anchor in references:
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_the_python_page_names_every_function() -> None:
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    functions = [name for name in dir(th) if inspect.isfunction(getattr(th, name))]
    assert [name for name in functions if f"`th.{name}" not in text] == []

"""A third-party dialect, registered by entry point, supports everything that built-in ones do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import thresher

HERE = Path(__file__).parent


def test_a_dialect_by_entry_point_supports_every_function_and_the_laws(tmp_path: Path) -> None:
    facts = tmp_path / "toy_dialect-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-dialect\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[thresher.dialects]\ncards = toy_dialect:DIALECT\n")
    shutil.copy(HERE / "toy_dialect.py", tmp_path)
    source = Path(thresher.__file__).parents[1]
    paths = [tmp_path, HERE.parent, HERE.parent / "window", source]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", str(HERE / "toy_laws.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout

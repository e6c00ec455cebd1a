"""Draw the report of `thresher run` as an SVG: `python tools/make_run_picture.py FILE.svg`.

A small agent reads forty log files in a loop. Its model is on loopback, and bills by prefix as Anthropic does.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from make_picture import draw

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "clients"))
from scripted_model import Call, ModelRequest, ScriptedModel, Turn

STEPS = 40
COMMAND = ["thresher", "run", "--budget", "30k", "--", "python", "agent.py"]
AGENT = """
import json, os, urllib.request

tool = {"name": "Read", "description": "Read a file.", "input_schema": {"type": "object"}}
shell = {"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object"}}
mark = {"cache_control": {"type": "ephemeral"}}
rows = [{"role": "user", "content": "Find out when the kiln failed."}]
while True:
    content = rows[-1]["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    marked = [*blocks[:-1], {**blocks[-1], **mark}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": True, "tools": [tool, shell],
            "messages": [*rows[:-1], {**rows[-1], "content": marked}]}
    request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode())
    answer = []
    for line in urllib.request.urlopen(request):
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if event["type"] == "content_block_start":
                answer.append(event["content_block"])
            elif event["type"] == "content_block_delta" and "text" in event["delta"]:
                answer[-1]["text"] += event["delta"]["text"]
            elif event["type"] == "content_block_delta" and "partial_json" in event["delta"]:
                answer[-1]["input"] = json.loads(event["delta"]["partial_json"])
    rows.append({"role": "assistant", "content": answer})
    calls = [block for block in answer if block["type"] == "tool_use"]
    if not calls:
        print(answer[0]["text"])
        break
    rows.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": call["id"], "content": open(call["input"]["file_path"]).read()}
        for call in calls]})
"""


def answer(request: ModelRequest) -> Turn:
    """Return the next turn of the model: it reads one log after the other."""
    done = max((int(result.call_id.rpartition("_")[2]) for result in request.results), default=-1) + 1
    if done == STEPS:
        return Turn("The kiln failed on day 39 at 1238 degrees: the fan stood still.")
    return Turn(f"Day {done}.", (Call("Read", {"file_path": f"day_{done}.log"}, f"call_{done}"),))


def main() -> None:
    """Run the agent behind `thresher run` and write the picture."""
    with closing(ScriptedModel(answer, strict=True)) as model, tempfile.TemporaryDirectory() as folder:
        for day in range(STEPS):
            lines = [
                f"day {day} 10:{minute % 60:02}:{minute // 60:02} the kiln has {1200 + day} degrees, fan {minute}"
                for minute in range(150)
            ]
            Path(folder, f"day_{day}.log").write_text("\n".join(lines))
        Path(folder, "agent.py").write_text(AGENT)
        program = [sys.executable, "-m", "thresher.cli", *COMMAND[1:-2], sys.executable, "agent.py"]
        environment = {
            **os.environ,
            "ANTHROPIC_BASE_URL": model.url,
            "THRESHER_HOME": f"{folder}/home",
            "COLUMNS": "80",
        }
        done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        assert not model.refusals, model.refusals
        printed = re.sub(r"\S*__main__.py", "thresher", done.stdout + done.stderr)
        Path(sys.argv[1]).write_text(draw(printed, COMMAND), encoding="utf-8")
        print(printed)


if __name__ == "__main__":
    main()

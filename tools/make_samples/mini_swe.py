"""mini-swe-agent: one JSON document per run, with messages in the format of OpenAI's chat API.

The agent has one tool, a shell. Each output is stored twice: for the model with its return code in tags, and raw under
`extra`. The last call is the submission; its only answer is an `exit` message with the patch.
"""

from pathlib import Path
from typing import Any

import msgspec

from make_samples import mini_swe_story as tale
from make_samples.seeds import Clock, Record, opaque, random_uuid, start, token, weight

MODEL = "deepseek-reasoner"
INSTANCE = "shop-issue-12"


def tool_call(command: str, seed: str, index: int) -> Record:
    """Build a shell call."""
    arguments = msgspec.json.encode({"command": command}).decode()
    function = {"arguments": arguments, "name": "bash"}
    return {
        "index": index,
        "function": function,
        "id": token(f"call_{index:02d}_", seed, 24),
        "type": "function",
    }


def assistant(step: tale.Step, number: int, fed: int, time: float) -> Record:
    """Build a model message with the API's whole response."""
    calls = [tool_call(action.command, f"{number} {index}", index) for index, action in enumerate(step.actions)]
    thinking = {"reasoning_content": step.thinking}
    message = {
        "content": step.text,
        "role": "assistant",
        "tool_calls": calls,
        "function_call": None,
        **thinking,
    }
    spent = weight(message)
    cached = fed // 64 * 64
    usage = {
        "completion_tokens": spent,
        "prompt_tokens": fed,
        "total_tokens": fed + spent,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    choice = {
        "finish_reason": "tool_calls",
        "index": 0,
        "message": {**message, "provider_specific_fields": thinking},
    }
    response = {
        "id": random_uuid(f"mini response {number}"),
        "created": int(time),
        "model": MODEL,
        "object": "chat.completion",
        "system_fingerprint": f"fp_{opaque('mini', 6)}",
        "choices": [choice],
        "usage": usage,
    }
    actions = [
        {"command": action.command, "tool_call_id": call["id"]}
        for action, call in zip(step.actions, calls, strict=True)
    ]
    extra = {"actions": actions, "response": response, "cost": cost(fed, cached, spent), "timestamp": time}
    return {**message, "provider_specific_fields": thinking, "extra": extra}


def cost(fed: int, cached: int, spent: int) -> float:
    """Return the dollars of one request."""
    return round((fed - cached) * 0.28e-6 + cached * 0.028e-6 + spent * 0.42e-6, 9)


def observation(action: tale.Action, identity: str, time: float) -> Record:
    """Build the output of the shell."""
    content = f"<returncode>{action.code}</returncode>\n<output>\n{action.output}</output>"
    extra = {"raw_output": action.output, "returncode": action.code, "timestamp": time, "exception_info": ""}
    return {"content": content, "extra": extra, "tool_call_id": identity, "role": "tool"}


def messages(clock: Clock) -> list[Record]:
    """Return the whole run, from the task to the submission."""
    found: list[Record] = [
        {"role": "system", "content": tale.SYSTEM},
        {"role": "user", "content": tale.TASK},
    ]
    fed = sum(weight(message) for message in found)
    for number, step in enumerate(tale.STEPS):
        answer = assistant(step, number, fed, clock.tick(6).timestamp())
        found.append(answer)
        fed += answer["extra"]["response"]["usage"]["completion_tokens"]
        for action, call in zip(step.actions, answer["tool_calls"], strict=True):
            if action.code is not None:
                found.append(observation(action, call["id"], clock.tick(0.4).timestamp()))
                fed += weight(action.output)
    ending = {"exit_status": "Submitted", "submission": tale.PATCH}
    return [*found, {"role": "exit", "content": tale.PATCH, "extra": ending}]


def info(said: list[Record]) -> Record:
    """Return the metadata of the run."""
    costs = [message["extra"]["cost"] for message in said if message["role"] == "assistant"]
    agent = {
        "system_template": tale.SYSTEM,
        "instance_template": tale.TEMPLATE,
        "step_limit": 250,
        "cost_limit": 3.0,
    }
    model: Record = {
        "model_name": f"deepseek/{MODEL}",
        "model_kwargs": {"drop_params": True, "temperature": 0.0},
    }
    environment: Record = {"image": "shop:latest", "cwd": "/testbed", "env": {"PAGER": "cat"}, "timeout": 60}
    config: dict[str, Any] = {
        "agent": agent,
        "agent_type": "minisweagent.agents.default.DefaultAgent",
        "model": model,
        "model_type": "minisweagent.models.litellm_model.LitellmModel",
        "environment": environment,
        "environment_type": "minisweagent.environments.docker.DockerEnvironment",
    }
    return {
        "model_stats": {"instance_cost": round(sum(costs), 9), "api_calls": len(costs)},
        "config": config,
        "mini_version": "2.2.7",
        "exit_status": "Submitted",
        "submission": tale.PATCH,
    }


def write(folder: Path) -> list[Path]:
    """Write the run's trajectory."""
    said = messages(start(2026, 3, 17, 8, 30, 0))
    document = {
        "info": info(said),
        "messages": said,
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": INSTANCE,
    }
    path = folder / "runs" / f"{INSTANCE}.traj.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    return [path]

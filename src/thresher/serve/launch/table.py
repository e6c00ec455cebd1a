"""The agents that `thresher run` knows, by the names of their programs."""

from thresher.serve.launch.agent import Agent
from thresher.serve.launch.by_variables import plan_aider, plan_any_command, plan_goose
from thresher.serve.launch.claude_code import COSTS, plan_claude_code
from thresher.serve.launch.cline import plan_cline
from thresher.serve.launch.codex import plan_codex
from thresher.serve.launch.gemini_cli import plan_gemini_cli
from thresher.serve.launch.opencode import plan_opencode
from thresher.serve.launch.pi import plan_pi

AGENTS = {
    agent.program: agent
    for agent in (
        Agent("Claude Code", "claude", plan_claude_code, COSTS),
        Agent("Codex", "codex", plan_codex),
        Agent("Gemini CLI", "gemini", plan_gemini_cli),
        Agent("opencode", "opencode", plan_opencode),
        Agent("pi", "pi", plan_pi),
        Agent("Cline", "cline", plan_cline),
        Agent("aider", "aider", plan_aider),
        Agent("goose", "goose", plan_goose),
    )
}


def describe_command(program: str) -> Agent:
    """Return the row for a program that is not in the table."""
    return Agent(program, program, plan_any_command)

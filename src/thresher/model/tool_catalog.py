"""Catalog of agent tools: maps tool names to categories.

Names are grouped by function, not by agent, because agents share most lowercased names (`Read`, `read`, `read_file`).
Where two agents use one name with different arguments, the row lists the keys of both agents, and the first present key
wins. To add a tool, add its name to a row of `TOOL_GROUPS`.

Only tools that *start* an agent are `subagent`. Reading an agent's output or stopping it starts no new work.
"""

from functools import lru_cache
from typing import Literal

from msgspec import Struct

ToolCategory = Literal[
    "file_edit", "file_read", "execution", "web", "analysis", "project", "mcp", "subagent", "plan", "question",
    "completion", "other",
]  # fmt: skip
"""Category of a call. `project` is the project's own state: git, memory, skills, modes. `completion` is the report that
the task is done."""

FileOperation = Literal["read", "write", "edit", "delete", "move", "list", "search", ""]
"""Operation on a file; empty if the call targets no single file."""


class ToolKind(Struct, frozen=True, gc=False):
    """A kind of tool, and the keys of the arguments that describe its action."""

    category: ToolCategory
    operation: FileOperation = ""
    path_keys: tuple[str, ...] = ()
    """Keys of the file path; the first present key wins."""
    command_keys: tuple[str, ...] = ()
    """Keys of the shell command or code."""
    intent_keys: tuple[str, ...] = ()
    """Keys of the stated intent."""
    patch_keys: tuple[str, ...] = ()
    """Keys of a patch that names its files."""
    subcommand_key: str = ""
    """Key of the tool's own subcommand (see `EDITOR_SUBCOMMANDS`)."""

    @property
    def reads_arguments(self) -> bool:
        """True if any argument matters; otherwise, arguments are not decoded."""
        return bool(self.path_keys or self.command_keys or self.intent_keys or self.patch_keys)


FILE_KEYS = (
    "file_path", "filePath", "path", "target_file", "notebook_path", "target_notebook", "absolute_path",
    "relative_path", "filename", "file_name", "file", "old_path", "files", "paths", "include",
)  # fmt: skip
FOLDER_KEYS = ("path", "dir_path", "dir", "directory", "folder", "target_directory", "relative_workspace_path", "paths")
MOVE_SOURCE_KEYS = ("source", "source_path", "old_path", "from", "path")
COMMAND_KEYS = ("command", "cmd", "commands", "script", "code", "action", "input", "keystrokes")
PATCH_KEYS = ("input", "patch", "patchText", "patch_text")
INTENT_KEYS = ("intent", "description", "explanation", "justification", "summary", "instruction")
TASK_KEYS = ("description", "intent", "title", "task_name", "objective", "task", "message", "prompt", "instructions")

EDITOR_SUBCOMMANDS: dict[str, tuple[ToolCategory, FileOperation]] = {
    "view": ("file_read", "read"),
    "read": ("file_read", "read"),
    "create": ("file_edit", "write"),
    "write": ("file_edit", "write"),
    "str_replace": ("file_edit", "edit"),
    "replace": ("file_edit", "edit"),
    "insert": ("file_edit", "edit"),
    "edit": ("file_edit", "edit"),
    "edit_file": ("file_edit", "edit"),
    "undo_edit": ("file_edit", "edit"),
    "delete": ("file_edit", "delete"),
    "rename": ("file_edit", "move"),
}
"""Category and operation of each subcommand of an all-in-one editor."""

TOOL_GROUPS: tuple[tuple[ToolKind, str], ...] = (
    (
        ToolKind("file_read", "read", FILE_KEYS, intent_keys=INTENT_KEYS),
        "read read_file read_files read_many_files read_text_file readfile view view_file view_image open"
        " open_file notebookread notebook_read read_notebook mcp__acp__read copilot_readfile inspect_file_as_text",
    ),
    (
        # SWE-agent scrolls its open file; these calls name no path.
        ToolKind("file_read", "read"),
        "goto scroll_up scroll_down set_cursors",
    ),
    (
        ToolKind("file_read", "list", FOLDER_KEYS, intent_keys=INTENT_KEYS),
        "ls list list_dir list_directory list_files listdir tree folder_tree directory_tree developer__tree"
        " copilot_listdirectory",
    ),
    (
        ToolKind("file_read", "search", FOLDER_KEYS, intent_keys=INTENT_KEYS),
        "glob grep find search search_files search_file_content grep_search grep_files ripgrep rg"
        " file_search glob_file_search find_files codebase_search semantic_search semanticsearch search_code"
        " search_codebase search_dir find_file copilot_searchcodebase",
    ),
    (
        # This tool searches within one file.
        ToolKind("file_read", "search", ("file_name", "file", "path")),
        "search_file",
    ),
    (
        ToolKind("file_edit", "write", FILE_KEYS, intent_keys=INTENT_KEYS),
        "write write_file write_to_file writefile create create_file save_file new_file mcp__acp__write"
        " create_new_jupyter_notebook developer__write",
    ),
    (
        ToolKind("file_edit", "edit", FILE_KEYS, intent_keys=INTENT_KEYS),
        "edit multiedit multi_edit edit_file edit_notebook notebookedit notebook_edit replace"
        " replace_in_file search_and_replace search_replace strreplace str_replace apply_diff insert"
        " insert_content append_file developer__edit insert_edit_into_file replace_string_in_file"
        " multi_replace_string_in_file edit_notebook_file edit_file_by_replace insert_content_at_line append"
        " mcp__acp__edit fast_edit_file",
    ),
    (
        ToolKind("file_edit", "edit", FILE_KEYS, intent_keys=INTENT_KEYS, subcommand_key="command"),
        "str_replace_editor str_replace_based_edit_tool str_replace_based_edit text_editor"
        " developer__text_editor file_editor planning_file_editor editor",
    ),
    (
        # Anthropic's memory tool edits its own files; other tools of that name do not.
        ToolKind("project", "", FILE_KEYS, subcommand_key="command"),
        "memory",
    ),
    (
        ToolKind("file_edit", "edit", patch_keys=PATCH_KEYS, intent_keys=INTENT_KEYS),
        "apply_patch applypatch patch apply_patch_tool",
    ),
    (ToolKind("file_edit", "delete", FILE_KEYS, intent_keys=INTENT_KEYS), "delete delete_file remove_file deletefile"),
    (ToolKind("file_edit", "move", MOVE_SOURCE_KEYS, intent_keys=INTENT_KEYS), "move move_file rename_file mv"),
    (
        ToolKind("execution", command_keys=COMMAND_KEYS, intent_keys=INTENT_KEYS),
        "bash shell shell_command local_shell local_shell_call exec exec_command unified_exec"
        " container.exec execute execute_bash execute_command run run_command run_commands run_shell_command"
        " run_terminal_cmd run_terminal_command run_terminal_command_v2 run_in_terminal runinterminal"
        " terminal developer__shell computercontroller__automation_script powershell cmd mcp__acp__bash"
        " mcp__ide__executecode execute_ipython_cell run_ipython ipython python python_interpreter"
        " code_interpreter js_repl run_notebook_cell runnotebookcell copilot_runinterminal bash_command"
        " executecode execute_code run_code",
    ),
    (
        # Tools that continue or inspect a running process.
        ToolKind("execution"),
        "write_stdin bashoutput bash_output killshell killbash kill_shell kill_bash taskoutput taskstop"
        " agentoutputtool read_bash write_bash stop_bash list_bash read_powershell write_powershell"
        " stop_powershell get_terminal_output await_terminal kill_terminal job_output job_kill task_output task_stop"
        " list_background_processes read_background_output read_command_output get_task_output run_task"
        " create_and_run_task run_tests runtests send_input wait wait_agent close_agent resume_agent"
        " list_agents read_agent write_agent stop_agent monitor sleep",
    ),
    (
        ToolKind("web", intent_keys=("prompt", "intent", "description")),
        "webfetch web_fetch fetch fetch_url fetchurl fetch_webpage websearch web_search web_search_call"
        " visit_page visit_webpage page_down page_up find_on_page_ctrl_f find_next find_archived_url"
        " google_web_search google_search search_web codesearch web_run browser browse browser_action"
        " browser_use browse_interactive open_simple_browser computer computer_use"
        " computercontroller__web_scrape web_scrape navigate_page new_page take_snapshot take_screenshot"
        " click fill hover press_key wait_for browser_navigate browser_click browser_type browser_get_state"
        " browser_get_content browser_scroll browser_go_back browser_list_tabs browser_switch_tab"
        " browser_close_tab download fetch_copilot_cli_documentation image_generation image_generation_call"
        " image_gen generate_image fetch_web_content",
    ),
    (
        ToolKind("analysis", "", FILE_KEYS, intent_keys=("intent", "description")),
        "lsp list_code_definition_names list_code_usages diagnostics read_lints readlints get_errors"
        " geterrors get_changed_files developer__analyze analyze sourcegraph",
    ),
    (ToolKind("analysis"), "think sequentialthinking sequential_thinking reflect expert_review"),
    (
        ToolKind("project"),
        "skill activate_skill use_skill invoke_skill load_skill fetch_instructions fetch_rules run_slash_command"
        " slashcommand save_memory savememory store_memory update_memory create_memory recall"
        " vote_memory session_store_sql"
        " memory__remember_memory memory__retrieve_memories memory__remove_memory_category"
        " memory__remove_specific_memory enterworktree exitworktree croncreate cronlist crondelete"
        " schedulewakeup config sql new_rule report_bug request_permissions toolsearch tool_search"
        " tool_search_call tool_search_tool_regex tool_search_tool_bm25",
    ),
    (
        ToolKind("mcp"),
        "use_mcp_tool access_mcp_resource load_mcp_documentation list_mcp_resources"
        " list_mcp_resource_templates read_mcp_resource fetch_mcp_resource listmcpresources"
        " listmcpresourcestool readmcpresource readmcpresourcetool call_mcp_tool call_tool_mcp",
    ),
    (
        ToolKind("subagent", intent_keys=TASK_KEYS),
        "task agent task_v2 new_task spawn_agent spawn_agents_on_csv use_subagents run_subagent runsubagent"
        " invoke_agent delegate delegate_to_agent codebase_investigator cli_help generalist subagent"
        " dispatch_agent developer__delegate summon__delegate subagent__execute_task dynamic_task__create_task"
        " search_subagent team_run_task delegate_to_browsing_agent",
    ),
    (
        ToolKind("plan", intent_keys=("explanation", "intent", "strategic_intent", "subject", "reason")),
        "todowrite todoread todo_write todo_read write_todos update_todo update_todo_list manage_todo_list"
        " managetodolist todo todo__todo_write todo__todo_read taskcreate taskupdate tasklist taskget"
        " update_plan create_plan enterplanmode exitplanmode enter_plan_mode exit_plan_mode plan_exit"
        " plan_enter act_mode_respond switch_mode switchmode task_tracker task_tracking"
        " tracker_create_task tracker_update_task tracker_get_task tracker_list_tasks tracker_add_dependency"
        " focus_chain report_intent update_topic create_goal get_goal update_goal teamcreate teamdelete"
        " sendmessage send_message condense request_condensation summarize_task exitspecmode",
    ),
    (
        # The agent reports that it is done.
        ToolKind("completion"),
        "finish submit attempt_completion complete_task exit_cost exit_forfeit task_complete report_agent_job_result"
        " final_answer task_completion plan_mode_respond plan_mode_response"
        " mark_task_complete submit_and_exit exit_context exit_api exit_format exit_error exit_environment_error"
        " exit_total_execution_time exit_command_timeout",
    ),
    (
        ToolKind("question", intent_keys=("question", "intent")),
        "askuserquestion ask_user ask_followup_question ask_question question request_user_input ask_user_question",
    ),
)

TOOLS_BY_NAME: dict[str, ToolKind] = {name: tool for tool, names in TOOL_GROUPS for name in names.split()}
"""Every known tool by its lowercased name."""

PLAN_APPROVAL_TOOLS = frozenset(("exitplanmode", "exit_plan_mode", "plan_exit", "exitspecmode"))
"""Tools that present a plan to a person, whose result is the person's decision."""

INCLUDED_CATEGORIES: dict[str, tuple[ToolCategory, ...]] = {"analysis": ("subagent",), "project": ("plan",)}
"""Narrower categories that the option `exclude_tool_categories` includes in a wider one."""

GIT_TOOL = ToolKind("project")
MCP_TOOL = ToolKind("mcp")
UNKNOWN_TOOL = ToolKind("other")


@lru_cache(maxsize=1024)
def find_tool_kind(name: str) -> ToolKind:
    """Return the kind of a tool by its name; an unknown name is a git or an MCP tool if it looks like one."""
    lowered = name.lower().removeprefix("functions.")
    known = TOOLS_BY_NAME.get(lowered)
    if known is not None:
        return known
    if lowered == "git" or lowered.startswith("git_"):
        return GIT_TOOL
    return MCP_TOOL if _is_mcp_name(lowered) else UNKNOWN_TOOL


def _is_mcp_name(name: str) -> bool:
    """Return whether a name has the form of an MCP tool's name.

    Claude Code writes `mcp__server__tool`, Gemini CLI `mcp_server_tool`, goose `server__tool`, Copilot CLI
    `github-mcp-server-tool`. Codex stores the connector's name separately and prefixes the tool with an underscore.
    """
    return name.startswith(("mcp_", "_")) or "__" in name or "-mcp-server-" in name

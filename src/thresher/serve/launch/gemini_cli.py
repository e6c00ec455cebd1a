"""Gemini CLI behind the proxy: a variable. It needs an API key; a Google login uses another API."""

from thresher.serve.launch.agent import (
    Launch,
    LaunchContext,
    LaunchError,
    get_table,
    plan_variables,
    read_json_settings,
    read_variable_file,
)

VARIABLES = {"gemini": (("GOOGLE_GEMINI_BASE_URL",), "https://generativelanguage.googleapis.com")}
KEY = "GEMINI_API_KEY"
OTHER_LOGINS = {
    "oauth-personal": "a Google login",
    "vertex-ai": "Vertex AI",
    "cloud-shell": "Cloud Shell",
    "compute-default-credentials": "the machine's Google account",
}
SWITCHES = {"GOOGLE_GENAI_USE_GCA": "oauth-personal", "GOOGLE_GENAI_USE_VERTEXAI": "vertex-ai"}


def plan_gemini_cli(context: LaunchContext) -> Launch:
    """Plan a run of Gemini CLI."""
    saved = _read_variables(context)
    known = {**saved, **context.environment}
    settings = [read_json_settings(folder / ".gemini" / "settings.json") for folder in (context.folder, context.home)]
    logins = [get_table(layer, "security", "auth").get("selectedType") for layer in settings]
    login = next((text for text in logins if text), "")
    login = login or next((name for switch, name in SWITCHES.items() if known.get(switch) == "true"), "")
    if login in OTHER_LOGINS:
        raise LaunchError(
            f"Gemini CLI uses {OTHER_LOGINS[login]} here, and its requests cannot pass the proxy; get an API key at "
            f"https://aistudio.google.com/apikey, set {KEY}, and choose `Use Gemini API Key` with /auth"
        )
    return plan_variables(context, VARIABLES, saved)


def _read_variables(context: LaunchContext) -> dict[str, str]:
    """Return the variables of the first `.env` file that Gemini CLI finds."""
    for folder in (context.folder, *context.folder.parents, context.home):
        for file in (folder / ".gemini" / ".env", folder / ".env"):
            if file.is_file():
                return read_variable_file(file)
    return {}

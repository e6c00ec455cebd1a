// Thresher for Claude Code: answers a compaction with a smaller history instead of a summary. If Thresher is missing, too
// slow or wrong, or nothing legal is small enough, Claude Code writes its summary as usual.
const COMMAND = ["thresher", "fit", "--hook"];
const VARIABLES = {};
const TIMEOUT_MS = 60000;

let isReported = false;

export function register(on) {
  on("session.compact", async ($, event, next) => {
    let problem = "";
    try {
      const tools = await $.tool.list();
      const names = (Array.isArray(tools) ? tools : []).map((tool) => String(tool.name ?? tool));
      const rows = event.messages.map(({ role, text, toolUses, toolResults }) => ({ role, text, toolUses, toolResults }));
      const request = JSON.stringify({ id: 1, kind: "compact", tools: names, rows });
      const init = { stdin: request + "\n", timeoutMs: TIMEOUT_MS, env: VARIABLES };
      const done = await $.process.run(COMMAND, init);
      const answer = JSON.parse(done.stdout);
      if (answer.rows?.length > 0) {
        const messages = answer.rows.map((row) => (typeof row === "number" ? event.messages[row] : row));
        return { messages };
      }
      problem = answer.problem ?? "";
    } catch (error) {
      problem = String(error?.message ?? error);
    }
    if (problem && !isReported) {
      isReported = true;
      await Promise.resolve($.ui.log(`Thresher: ${problem}. Claude Code compacts as usual. Shown once.`)).catch(() => {});
    }
    return next(event);
  });
}

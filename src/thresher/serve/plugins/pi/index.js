// Thresher for pi: fits each request to the model, as the last step before it is sent.
import { FitProcess } from "./fit_process.js";

export default function (pi) {
  let notify = (text) => console.error(text);
  const thresher = new FitProcess((text) => notify(text));
  let current = "";
  let isEdited = false;

  pi.on("before_provider_request", async (event, ctx) => {
    if (ctx.hasUI) notify = (text) => ctx.ui.notify(text, "warning");
    const session = ctx.sessionManager.getSessionId();
    const answer = await thresher.ask({ kind: "body", session, api: ctx.model?.api, body: event.payload });
    current = session;
    isEdited = Boolean(answer?.body);
    return answer?.body;
  });

  pi.on("message_end", async (event) => {
    const { role, usage, stopReason, errorMessage } = event.message;
    if (role !== "assistant" || !current) return;
    if (usage && usage.input + usage.cacheRead + usage.cacheWrite > 0) {
      const { input, output, cacheRead: cache_read, cacheWrite: cache_write } = usage;
      thresher.ask({ kind: "usage", session: current, usage: { input, output, cache_read, cache_write } });
    }
    // An edited request that the API refuses is the last one of its session that is edited.
    if (isEdited && stopReason === "error" && /\b400\b/.test(errorMessage ?? "")) {
      await thresher.ask({ kind: "refused", session: current, status: 400 });
    }
    isEdited = false;
  });
}

// Thresher for pi: fits each request to the model, as the last step before it is sent.
import { FitProcess } from "./fit_process.js";

export default function (pi) {
  let notify = (text) => console.error(text);
  const thresher = new FitProcess((text) => notify(text));
  let edited = "";

  pi.on("before_provider_request", async (event, ctx) => {
    if (ctx.hasUI) notify = (text) => ctx.ui.notify(text, "warning");
    const session = ctx.sessionManager.getSessionId();
    const answer = await thresher.ask({ kind: "body", session, api: ctx.model?.api, body: event.payload });
    edited = answer?.body ? session : "";
    return answer?.body;
  });

  // An edited request that the API refuses is the last one of its session that is edited.
  pi.on("after_provider_response", (event) => {
    if (edited && event.status === 400) thresher.ask({ kind: "refused", session: edited, status: event.status });
    edited = "";
  });
}

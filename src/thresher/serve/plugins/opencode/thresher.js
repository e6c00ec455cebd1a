// Thresher for opencode: fits the messages of each model call. The session that opencode stores does not change.
import { FitProcess } from "./thresher/fit_process.js";

export const Thresher = async ({ client }) => {
  const report = (message) => client.app.log({ body: { service: "thresher", level: "warn", message } });
  const thresher = new FitProcess((text) => {
    console.error(text);
    return report(text);
  });
  const edited = new Set();
  const compacting = new Set();
  return {
    "experimental.chat.messages.transform": async (_input, output) => {
      const before = output.messages;
      const session = before[0]?.info.sessionID;
      if (compacting.delete(session)) return;
      const answer = await thresher.ask({ kind: "opencode", rows: before });
      edited.delete(session);
      if (!Array.isArray(answer?.rows) || answer.rows.length === 0) return;
      edited.add(session);
      const rows = answer.rows.map((row) => (typeof row === "number" ? before[row] : row));
      // opencode uses this list afterward, even if a hook assigns another one.
      before.splice(0, before.length, ...rows);
    },
    // The next messages are those that opencode summarizes, and a summary needs them whole.
    "experimental.session.compacting": async ({ sessionID }) => {
      compacting.add(sessionID);
    },
    // An edited request that the API refuses is the last one of its session that is edited.
    event: async ({ event }) => {
      const { sessionID, error } = event.properties ?? {};
      if (event.type !== "session.error" || error?.data?.statusCode !== 400 || !edited.delete(sessionID)) return;
      await thresher.ask({ kind: "refused", session: sessionID, status: 400 });
    },
  };
};

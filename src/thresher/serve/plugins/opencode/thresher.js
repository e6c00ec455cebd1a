// Thresher for opencode: fits the messages of each model call. The session that opencode stores does not change.
import { FitProcess } from "./thresher/fit_process.js";

export const Thresher = async ({ client }) => {
  const report = (message) => client.app.log({ body: { service: "thresher", level: "warn", message } });
  const thresher = new FitProcess((text) => {
    console.error(text);
    return report(text);
  });
  return {
    "experimental.chat.messages.transform": async (_input, output) => {
      const before = output.messages;
      const answer = await thresher.ask({ kind: "opencode", rows: before });
      if (!Array.isArray(answer?.rows) || answer.rows.length === 0) return;
      const rows = answer.rows.map((row) => (typeof row === "number" ? before[row] : row));
      // opencode goes on with this list, and not with another one that a hook assigns.
      before.splice(0, before.length, ...rows);
    },
  };
};

// One `thresher fit --hook` for this process of the agent: JSON lines in and out. Nothing here may break a session: if
// Thresher is missing, too slow or wrong, `ask` returns null, and the agent's own request is sent.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const COMMAND = ["thresher", "fit", "--hook"];
const VARIABLES = {};
const TIMEOUT_MS = Number(process.env.THRESHER_HOOK_TIMEOUT_MS) || 10_000;
const MAX_TIMEOUTS = 3; // in a row; one may be due to a computer that slept

export class FitProcess {
  constructor(report) {
    this.report = report;
    this.reported = false;
    this.waiting = new Map();
    this.count = 0;
    this.child = null;
    this.timeouts = 0;
    this.failed = false;
  }

  // Send a request and return its answer; null if there is none in time.
  ask(request) {
    if (this.failed) return Promise.resolve(null);
    try {
      this.child ??= this.start();
      const id = ++this.count;
      const line = JSON.stringify({ id, ...request }) + "\n";
      return new Promise((resolve) => {
        const timer = setTimeout(() => this.giveUp(id), TIMEOUT_MS);
        this.waiting.set(id, { resolve, timer });
        this.child.stdin.write(line);
      });
    } catch (error) {
      this.fail(error.message);
      return Promise.resolve(null);
    }
  }

  start() {
    const [program, ...words] = COMMAND;
    const child = spawn(program, words, { stdio: ["pipe", "pipe", "ignore"], env: { ...process.env, ...VARIABLES } });
    child.on("error", (error) => this.fail(error.message));
    child.on("exit", () => this.fail(`\`${program}\` ended`));
    child.stdin.on("error", () => {});
    createInterface({ input: child.stdout }).on("line", (line) => {
      try {
        const answer = JSON.parse(line);
        this.timeouts = 0;
        this.settle(answer.id, answer, answer.problem);
      } catch (error) {
        this.fail(error.message);
      }
    });
    // The agent may exit at any time. Its end of the pipe then closes, and the process ends after what it has read.
    for (const handle of [child, child.stdin, child.stdout]) handle.unref?.();
    return child;
  }

  giveUp(id) {
    const problem = `no answer in ${TIMEOUT_MS} ms`;
    this.settle(id, null, problem);
    if (++this.timeouts < MAX_TIMEOUTS) return;
    this.fail(problem);
    this.child.kill();
  }

  settle(id, answer, problem) {
    const request = this.waiting.get(id);
    if (problem) this.tell(problem);
    if (!request) return;
    clearTimeout(request.timer);
    this.waiting.delete(id);
    request.resolve(answer);
  }

  fail(problem) {
    this.failed = true;
    for (const id of [...this.waiting.keys()]) this.settle(id, null, problem);
    this.tell(problem);
  }

  tell(problem) {
    if (this.reported) return;
    this.reported = true;
    try {
      this.report(`Thresher: ${problem}. Requests that it does not answer are sent unchanged. Shown once.`);
    } catch {}
  }
}

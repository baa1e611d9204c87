/**
 * Chain: each step merges the summary so far with the summary of the next report. The whole chain is one
 * request. Each link begins when the previous one is done, and the server summarises all reports in parallel.
 */
import { chat, input, join, output, user } from "../sdk/src/index.ts";
import { reports } from "./reports.ts";

const greedy = { temperature: 0 };
const summarise = chat(
  [user`Summarise this report in one sentence per section.\n\n${input("report")}`],
  output("summary", greedy),
);
const merge = chat(
  [user`Merge these summaries into one.\n\n${input("summaries")}`],
  output("merged", greedy),
);

const summaries = reports.map((report) => summarise({ report }).summary);
const all = summaries.reduce(
  (before, next) => merge({ summaries: join(["Summary 1: ", before, "\n\nSummary 2: ", next], "") }).merged,
);

for await (const piece of all.stream("latency")) process.stdout.write(piece);
process.stdout.write("\n");

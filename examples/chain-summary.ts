/**
 * A chain: what was said so far is merged with the summary of the next report. It is one request; each link begins the moment
 * the one before it is written, and all reports are summed up meanwhile.
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

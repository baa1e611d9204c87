/**
 * Map and reduce: the server summarises all reports in parallel, and one call merges the summaries. Only the
 * completion of the last summary matters, so the server schedules them as a task group.
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

const summaries = reports.flatMap((report, index) => [
  `${index === 0 ? "" : "\n\n"}Summary ${index + 1}: `,
  summarise({ report }).summary,
]);
console.log(await merge({ summaries: join(summaries, "") }).merged.get("latency"));

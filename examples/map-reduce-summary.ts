/**
 * Map and reduce: every report is summed up at once, and one call merges the summaries. Only the last of the first ones counts, so
 * the server runs them as a gang.
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

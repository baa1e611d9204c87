import { readFileSync } from "node:fs";

const code = readFileSync(new URL("../../base/part.ts", import.meta.url), "utf8");
const article = readFileSync(
  new URL("../../docs/decisions/0007-step-block-holds-all-inputs.md", import.meta.url),
  "utf8",
);

/** Questions by how much their completions repeat earlier text. */
export const tasks = {
  edit: `Rename COPIED_MAX to LIMIT in this file and write the whole file again:\n\n${code}`,
  quote: `Repeat this text word by word:\n\n${article}`,
  records: `Write 20 JSON records of people, one per line, with the fields "id", "name", "age" and "city".`,
  chat: "Why is the sky blue at noon and red in the evening? Explain it to a child.",
} as const;

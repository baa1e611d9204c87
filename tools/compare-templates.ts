/**
 * Compares our rendering of templates with Python's.
 *
 *   npx bun tools/compare-templates.ts random.json [shown]
 *
 * The file comes from tools/random-templates.py or has its format. Prints at most `shown` differences (10).
 */
import { readFileSync } from "node:fs";
import { JinjaError } from "../text/jinja/errors.ts";
import { JinjaTemplate } from "../text/jinja/jinja-template.ts";
import { readJson } from "../text/jinja/json.ts";
import type { Dict, Value } from "../text/jinja/values.ts";

interface Probe {
  readonly template: string;
  readonly text?: string;
  readonly error?: string;
}

const [path = "", shown = "10"] = process.argv.slice(2);
const json = readFileSync(path, "utf8");
const { groups } = JSON.parse(json) as { readonly groups: Readonly<Record<string, readonly Probe[]>> };
const variables = new Map<string, Value>();
for (const [name, value] of ((readJson(json) as Dict).get("variables") as Dict).entries()) {
  variables.set(name as string, value);
}

function outcome(template: string): Omit<Probe, "template"> {
  try {
    return { text: new JinjaTemplate(template).render({ variables, now: new Date(0) }) };
  } catch (error) {
    if (!(error instanceof JinjaError)) throw error;
    return { error: error.kind };
  }
}

const probes = Object.values(groups).flat();
let texts = 0;
let otherErrors = 0;
const differing: string[] = [];
for (const { template, text, error } of probes) {
  const ours = outcome(template);
  if (text !== undefined) texts++;
  if (ours.text !== text) {
    const lines = [template, text ?? `${error}`, ours.text ?? `${ours.error}`].map((line) =>
      JSON.stringify(line),
    );
    differing.push(`template ${lines[0]}\n  Python ${lines[1]}\n  ours   ${lines[2]}`);
  } else if (ours.error !== error) otherErrors++;
}
for (const difference of differing.slice(0, Number(shown))) console.log(difference);
console.log(
  `${probes.length} templates, ${texts} of them texts and the rest errors: ${differing.length} differ; ` +
    `of the errors ${otherErrors} are of another class`,
);
process.exitCode = differing.length === 0 ? 0 : 1;

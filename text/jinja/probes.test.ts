/** Small templates of one rule each, with Python's results: tests/reference/templates, with the script. */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { JinjaError } from "./errors.ts";
import { JinjaTemplate } from "./jinja-template.ts";
import { readJson } from "./json.ts";
import type { Dict, Value } from "./values.ts";

interface Probe {
  readonly template: string;
  readonly text?: string;
  /** Class of Python's exception. */
  readonly error?: string;
  /** Its message, if the template determines it or it names an undefined value. */
  readonly says?: string;
}

const path = join(import.meta.dir, "../../tests/reference/templates/probes.json");
const json = readFileSync(path, "utf8");
const { groups } = JSON.parse(json) as { readonly groups: Readonly<Record<string, readonly Probe[]>> };
const given = (readJson(json) as Dict).get("variables") as Dict;
const variables = new Map<string, Value>();
for (const [name, value] of given.entries()) variables.set(name as string, value);

function outcome(template: string): Omit<Probe, "template"> {
  try {
    return { text: new JinjaTemplate(template).render({ variables, now: new Date(0) }) };
  } catch (error) {
    if (!(error instanceof JinjaError)) throw error;
    return { error: error.kind, ...(error.kind === "TemplateError" ? { says: error.message } : {}) };
  }
}

for (const [rule, probes] of Object.entries(groups)) {
  describe(rule, () => {
    for (const { template, text, error, says } of probes) {
      test(JSON.stringify(template), () => {
        const wanted =
          text !== undefined ? { text } : { error, ...(error === "TemplateError" ? { says } : {}) };
        expect(outcome(template)).toEqual(wanted as Omit<Probe, "template">);
      });
    }
  });
}

/**
 * Calls written by published templates are parsed back to equal calls. The templates belong to others, so
 * they are not in the tree: tools/published-templates.py fetches them.
 */
import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { triggersOf } from "../../grammar/tools/call-form.ts";
import { readCalls } from "../../tests/support/read-calls.ts";
import { ControlTexts, plainText } from "../control-text.ts";
import { ChatTemplate } from "../template.ts";
import { TemplateError } from "../template-error.ts";
import { callFormIn } from "./call-forms.ts";

const folder = process.env.BUNTING_TEMPLATES ?? join(import.meta.dir, "../../build/templates");
const files = (() => {
  try {
    return readdirSync(folder).filter((file) => file.endsWith(".jinja"));
  } catch {
    console.log(`no published templates in ${folder}: tools/published-templates.py fetches them`);
    return [];
  }
})();

/** Prefixes of the names of templates whose calls are not parsed, with the reason. */
const unread: Readonly<Record<string, string>> = {
  "1337b782": "Jamba's form",
  bbbf2de8: "GigaChat's form",
  "304f0d64": "GigaChat's form",
  "4578103b": "Kimi K3's form",
  "2fc9dbfa": "Functionary's form",
  "5c7c96c2": "Functionary's form",
  e1790d8f: "MiniMax M1's form",
  "11421244": "MiniMax M3's form",
  cfc67e5f: "Muse's form",
  "6eec84cc": "Muse's form",
  "84437b97": "Hunyuan 3's form",
  "4618a1ec": "Solar's form",
  a4c9919c: "gpt-oss: the past names the function in another place than answers do",
  "6adda7ce": "gpt-oss: the same",
  f8d92557: "gpt-oss: the same",
  bf9e9ee8: "Command R+: refuses calls in the API's form",
  "0d11fd8d": "refuses offered functions",
  "013e5cdf": "a copy of DeepSeek V3's with other white space",
  d51e33eb: "a copy of Qwen 2's with broken quotes",
};

const city = { properties: { city: { type: "string" } } };
const called = { city: "Rome", days: 3, exact: true, tags: ["x", { y: 1.5 }] };
const tools = [
  { type: "function", function: { name: "get_weather", description: "Weather.", parameters: city } },
];
const messages = [
  { role: "user", content: "Azq1" },
  {
    role: "assistant",
    content: "",
    reasoning_content: "Thought.",
    tool_calls: [{ id: "abcdefgh1", type: "function", function: { name: "get_weather", arguments: called } }],
  },
  { role: "tool", tool_call_id: "abcdefgh1", content: "Sun." },
];

/** True if the call in the template's text is read as it was. */
function isReadBack(jinja: string): boolean {
  const specialTokens = { bos_token: "<s>", eos_token: "</s>" };
  const template = new ChatTemplate(
    { template: jinja, toolTemplate: null, specialTokens },
    new ControlTexts([]),
  );
  const form = callFormIn(jinja);
  if (form === null) return false;
  const written = plainText(template.write(messages, { addGenerationPrompt: false, tools }));
  const answer = written.slice(written.lastIndexOf("Azq1"));
  const starts = triggersOf(form, ["get_weather"]).map((trigger) => answer.indexOf(trigger));
  const functions = [{ name: "get_weather", parameters: city, isStrict: false }];
  const [call, given] = readCalls(form, functions, [answer.slice(Math.max(0, ...starts))]);
  if (call?.kind !== "call" || given?.kind !== "arguments") return false;
  try {
    return Bun.deepEquals(JSON.parse(given.text), called);
  } catch {
    return false;
  }
}

test.skipIf(files.length === 0)(
  "calls that published templates write are read back equal",
  () => {
    const wrong: string[] = [];
    for (const file of files) {
      const jinja = readFileSync(join(folder, file), "utf8");
      if (!/\btools\b/.test(jinja)) continue;
      try {
        const isKnown = Object.hasOwn(unread, file.slice(0, 8));
        const writesCalls = /\btool_calls\b/.test(jinja) || callFormIn(jinja) !== null;
        if (writesCalls && isReadBack(jinja) === isKnown) wrong.push(file.slice(0, 8));
      } catch (error) {
        if (!(error instanceof TemplateError)) throw error;
      }
    }
    expect(wrong).toEqual([]);
  },
  60_000,
);

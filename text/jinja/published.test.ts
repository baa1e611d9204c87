/**
 * Published templates render our conversations to the same texts as in transformers.
 * tests/reference/templates has hashes of the texts; tools/published-templates.py fetches the templates.
 * Without them the test compares nothing and prints a line that says so.
 */
import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseJson } from "../../server/http/json/parse.ts";
import { defaultJsonLimits } from "../../server/http/limits.ts";
import { ControlTexts, plainText } from "../control-text.ts";
import type { ChatMessage } from "../conversation/messages.ts";
import { ChatTemplate } from "../template.ts";
import { TemplateError } from "../template-error.ts";

interface Golden {
  readonly now: string;
  readonly specialTokens: Readonly<Record<string, string>>;
  /** JSON sources, so that numbers can be read as they are written. */
  readonly conversations: readonly string[];
  /** SHA-256 of a template → for each conversation eight characters: of the text's SHA-256, or "refused!". */
  readonly golden: Readonly<Record<string, string>>;
}

interface Conversation {
  readonly name: string;
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly object[];
  readonly addGenerationPrompt?: boolean;
  readonly variables?: Readonly<Record<string, unknown>>;
}

interface Call {
  readonly function: { readonly arguments: string };
}

const root = join(import.meta.dir, "../..");
const folder = process.env.BUNTING_TEMPLATES ?? join(root, "build/templates");
const file = readFileSync(join(root, "tests/reference/templates/golden.json"), "utf8");
const { now, specialTokens, conversations, golden } = JSON.parse(file) as Golden;
const limits = defaultJsonLimits;
const cases = conversations.map((json) => {
  const conversation = parseJson(json, limits) as Conversation;
  return { ...conversation, messages: conversation.messages.map(withArguments) };
});

/** Parses the arguments of calls to values, as the API does. */
function withArguments(message: ChatMessage): ChatMessage {
  const calls = message.tool_calls as readonly Call[] | undefined;
  if (calls === undefined) return message;
  const read = calls.map((call) => {
    const values = parseJson(call.function.arguments, limits);
    return { ...call, function: { ...call.function, arguments: values } };
  });
  return { ...message, tool_calls: read };
}

function outcome(template: ChatTemplate, conversation: Conversation): string {
  const { messages, tools = null, addGenerationPrompt = true, variables = {} } = conversation;
  try {
    const rendered = template.render(messages, { tools, addGenerationPrompt, templateKwargs: variables });
    return createHash("sha256").update(plainText(rendered)).digest("hex").slice(0, 8);
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    return "refused!";
  }
}

/** Names of conversations for which a template's result differs from Python's. */
function differing(key: string, controlTexts: ControlTexts): string[] {
  const path = join(folder, `${key}.jinja`);
  const source = { template: readFileSync(path, "utf8"), toolTemplate: null, specialTokens };
  const template = new ChatTemplate(source, controlTexts, () => new Date(now));
  const wanted = golden[key]!;
  return cases
    .filter((conversation, i) => outcome(template, conversation) !== wanted.slice(8 * i, 8 * i + 8))
    .map(({ name }) => name);
}

const markers = [
  "<|im_end|>",
  "<|im_start|>",
  "</s>",
  "[INST]",
  "<think>",
  "</think>",
  "<｜User｜>",
  "<end_of_turn>",
];
const isThere = Object.keys(golden).every((key) => existsSync(join(folder, `${key}.jinja`)));
if (!isThere) console.log(`no published templates in ${folder}: tools/published-templates.py fetches them`);

test.skipIf(!isThere).each([
  ["as transformers does", []],
  ["as transformers does where a user's markers are kept text", markers],
])("published templates are rendered %s", (_, markersOfUsers) => {
  const controlTexts = new ControlTexts(markersOfUsers);
  const wrong = Object.keys(golden).map((key) => [key, differing(key, controlTexts)] as const);
  expect(wrong.filter(([, names]) => names.length > 0)).toEqual([]);
});

/**
 * Property of every field on every computing route: a request names a field as ignored exactly if the field
 * changes nothing.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { requestFields as fields } from "../../tests/support/request-fields.ts";
import { noDefaults } from "../../tests/support/served-model.ts";
import { ControlTexts } from "../../text/control-text.ts";
import { ChatTemplate } from "../../text/template.ts";
import { ApiError } from "../http/errors.ts";
import { parseMessagesRequest } from "./anthropic/schema.ts";
import type { EmbedServices } from "./embed.ts";
import { parseLlamaCompletion, parseLlamaInfill } from "./llama/completion.ts";
import { parseLlamaEmbedding } from "./llama/embedding.ts";
import { parseOllamaEmbed } from "./ollama/embed.ts";
import { parseOllamaChat, parseOllamaGenerate } from "./ollama/schema.ts";
import { parseEmbeddingsRequest } from "./openai/embeddings.ts";
import { parseChatRequest, parseCompletionRequest } from "./openai/schema.ts";
import { parseResponsesRequest } from "./responses/schema.ts";
import { parseRerank, parseScore } from "./score.ts";
import { noTargets } from "./targets.ts";

type Body = Readonly<Record<string, unknown>>;

const model = {
  names: ["demo"],
  contextMax: 1000,
  vocabSize: 1000,
  tokensOf: (text: string) => [text.length],
  fill: { prefix: 1, suffix: 2, middle: 3, isSuffixFirst: false, repository: null, file: null, ends: [4] },
  generationDefaults: noDefaults,
};
const templateOf = (template: string) =>
  new ChatTemplate({ template, toolTemplate: null, specialTokens: {} }, new ControlTexts([]));
/**
 * Templates with a switch for reasoning, with efforts, of a model that reasons and accepts neither, and of one that
 * does not reason.
 */
const templates = [
  "{{ enable_thinking }}<think>",
  "{{ reasoning_effort }}<think>",
  "<think>",
  "{{ tools }}",
].map(templateOf);

interface Route {
  readonly body: Body;
  readonly parse: (body: Body, template: ChatTemplate) => { readonly ignored: readonly string[] };
  /** Object that holds the sampling fields; absent: the body. */
  readonly inner?: "options";
}

const embedding = {
  ...model,
  embedding: { pooling: "last", size: 8 } as const,
  score: { weights: new Float32Array(8) },
};
const scored = { model: embedding } as unknown as EmbedServices;
const messages = [{ role: "user", content: "Hi" }];
const routes: Readonly<Record<string, Route>> = {
  "/v1/chat/completions": {
    body: { messages, seed: 1 },
    parse: (body, template) => parseChatRequest(body, model, noTargets, template),
  },
  "/v1/completions": {
    body: { prompt: "Hi", seed: 1 },
    parse: (body) => parseCompletionRequest(body, model),
  },
  "/v1/responses": {
    body: { input: "Hi", seed: 1 },
    parse: (body, template) => parseResponsesRequest(body, { model, template }),
  },
  "/v1/messages": {
    body: { messages, max_tokens: 9, seed: 1 },
    parse: (body, template) => parseMessagesRequest(body, { model, template }),
  },
  "/api/chat": {
    body: { model: "demo", messages, options: { seed: 1 } },
    parse: (body, template) => parseOllamaChat(body, { model, template }, noTargets),
    inner: "options",
  },
  "/api/generate": {
    body: { model: "demo", prompt: "Hi", options: { seed: 1 } },
    parse: (body, template) => parseOllamaGenerate(body, { model, template }, noTargets),
    inner: "options",
  },
  "/api/generate, raw": {
    body: { model: "demo", prompt: "Hi", raw: true, options: { seed: 1 } },
    parse: (body, template) => parseOllamaGenerate(body, { model, template }, noTargets),
    inner: "options",
  },
  "/infill": {
    body: { input_prefix: "Hi", input_suffix: "you", seed: 1 },
    parse: (body) => parseLlamaInfill(body, { model }, noTargets),
  },
  "/completion": {
    body: { prompt: "Hi", seed: 1 },
    parse: (body) => parseLlamaCompletion(body, { model }, noTargets),
  },
  "/v1/embeddings": { body: { input: "Hi" }, parse: (body) => parseEmbeddingsRequest(body, scored) },
  "/v1/rerank": {
    body: { query: "Hi", documents: ["you", "me"] },
    parse: (body) => parseRerank(body, scored, noTargets),
  },
  "/v1/score": {
    body: { text_1: "Hi", text_2: "you" },
    parse: (body) => parseScore(body, scored, noTargets),
  },
  "/api/embed": {
    body: { model: "demo", input: "Hi" },
    parse: (body) => parseOllamaEmbed(body, scored, noTargets),
  },
  "/embedding": { body: { content: "Hi" }, parse: (body) => parseLlamaEmbedding(body, scored, noTargets) },
};

/**
 * Fields for the client's own use: the server returns, stores or counts them, and they do not affect
 * sampling.
 */
const toldBack = ["user", "metadata", "store"];

/**
 * The parsed request without values that differ between two readings and without template arguments that its
 * template ignores.
 */
function askedOf(
  route: Route,
  body: Body,
  template: ChatTemplate,
): { readonly ignored: readonly string[]; readonly rest: unknown } {
  const { ignored, ...request } = route.parse(body, template) as unknown as Body & {
    ignored: readonly string[];
  };
  const rest: unknown = JSON.parse(
    JSON.stringify(request, (name, value: unknown) => {
      if (
        name === "key" ||
        (name === "echo" && typeof value === "object") ||
        (name === "id" && String(value).length > 30)
      )
        return undefined;
      if (name !== "templateArguments")
        return ArrayBuffer.isView(value) ? [...(value as Uint32Array)] : value;
      return Object.fromEntries(
        Object.entries(value as object).filter(([key]) => template.mentions(key, false)),
      );
    }),
  );
  return { ignored, rest };
}

/**
 * Groups the reasoning fields: each group sets one option in several ways, and the first one counts even if it
 * has no effect.
 */
function subjectOf(name: string): string {
  return /think|reason|output_config|chat_template/.test(name) ? "thinking" : name;
}

/** True if `ignored` names the field or one of its keys. */
function isListed(name: string, value: unknown, ignored: readonly string[]): boolean {
  const paths = [name, `options.${name}`];
  if (ignored.some((one) => paths.includes(one))) return true;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.keys(value).some((key) => paths.some((path) => ignored.includes(`${path}.${key}`)));
}

const inOptions = new Set(
  Object.keys(fields).filter((name) =>
    /^(num_|top_|min_|max_|stop|repe|pres|freq|logit|allow|bad|temp|seed|ignore|skip|include_stop|mirostat|typical|tfs|dyna|xtc|dry|samplers|penal|cache_salt)/.test(
      name,
    ),
  ),
);

function withField(route: Route, body: Body, name: string, value: unknown): Body {
  if (route.inner === undefined || !inOptions.has(name)) return { ...body, [name]: value };
  return { ...body, options: { ...(body.options as object), [name]: value } };
}

const isRefused = (error: unknown): boolean => {
  if (error instanceof ApiError) return true;
  throw error;
};

describe.each(Object.entries(routes))("%s", (_, route) => {
  test.each(Object.keys(fields))("%s alone changes what is asked, is named, or is refused", (name) => {
    for (const template of templates) {
      const without = askedOf(route, route.body, template);
      expect(without.ignored).toEqual([]);
      for (const value of fields[name]!) {
        let given: ReturnType<typeof askedOf>;
        try {
          given = askedOf(route, withField(route, route.body, name, value), template);
        } catch (error) {
          expect(isRefused(error)).toBe(true);
          continue;
        }
        const changes = !Bun.deepEquals(given.rest, without.rest);
        const listed = isListed(name, value, given.ignored);
        const told = [name, value, template.sourceText(false), changes ? "changes" : "changes nothing"];
        if (!toldBack.includes(name)) expect([...told, listed]).toEqual([...told, !changes]);
      }
    }
  });

  test("of several, none is named that changes what is asked", () => {
    const names = Object.keys(fields).filter((name) => !toldBack.includes(name));
    const some = fc.uniqueArray(
      fc
        .constantFrom(...names)
        .chain((name) => fc.tuple(fc.constant(name), fc.constantFrom(...fields[name]!))),
      { maxLength: 6, selector: ([name]) => subjectOf(name) },
    );
    fc.assert(
      fc.property(some, fc.constantFrom(...templates), (given, template) => {
        const bodyOf = (chosen: typeof given): Body =>
          chosen.reduce((body, [name, value]) => withField(route, body, name, value), route.body);
        try {
          const whole = askedOf(route, bodyOf(given), template);
          for (const [name, value] of given) {
            if (!isListed(name, value, whole.ignored) || typeof value === "object") continue;
            const without = askedOf(route, bodyOf(given.filter((one) => one[0] !== name)), template);
            expect([name, without.rest]).toEqual([name, whole.rest]);
          }
        } catch (error) {
          expect(isRefused(error)).toBe(true);
        }
      }),
      runs(500),
    );
  });
});

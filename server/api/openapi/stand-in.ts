/** Stand-in for the served model, so that the OpenAPI document does not depend on the model. */

import { ControlTexts } from "../../../text/control-text.ts";
import { ChatTemplate } from "../../../text/template.ts";
import type { ServedModel } from "../../request/served-model.ts";

/** Sizes of the stand-in model. No limit of a request equals one, so that the document can leave them out. */
const CONTEXT_MAX = 1_000_003;
const VOCABULARY = 1_000_081;
const EMBEDDING = 65_537;

/** Bounds that come from the model and say nothing about the API. */
export const modelBounds: readonly number[] = [CONTEXT_MAX, VOCABULARY - 1, EMBEDDING];

const model: ServedModel = {
  names: ["demo"],
  answersToAny: true,
  keepsAlive: true,
  contextMax: CONTEXT_MAX,
  vocabSize: VOCABULARY,
  tokensOf: (text) => [text.length],
  generationDefaults: { temperature: null, topP: null, topK: null, minP: null, repetitionPenalty: null },
  fill: { prefix: 1, suffix: 2, middle: 3, isSuffixFirst: false, repository: null, file: null, ends: [4] },
  embedding: { pooling: "last", size: EMBEDDING },
};

const source = "{{ enable_thinking }}{{ reasoning_effort }}{{ tools }}<think>";
const template = new ChatTemplate(
  { template: source, toolTemplate: null, specialTokens: {} },
  new ControlTexts([]),
);

/** Facts about the model that readers of bodies need. */
export const standIn = { model, template } as const;

/** Post-processors of tokenizer.json: the tokens that they put around a text, or around a pair of texts. */
import type { TokenId } from "../base/token.ts";
import { flattened, type JsonObject, TokenizerError } from "./tokenizer-file.ts";

/** Tokens of a pair of texts. */
export interface TokenPair {
  readonly tokens: readonly TokenId[];
  /** Index of the first token of the second text, whose tokens have type 1; 0: no token has type 1. */
  readonly secondAt: number;
}

export interface PostProcessor {
  readonly before: readonly TokenId[];
  readonly after: readonly TokenId[];
  pair(first: readonly TokenId[], second: readonly TokenId[]): TokenPair;
}

/** Part of a template: tokens, or one of the texts. */
interface Part {
  readonly type: number;
  readonly tokens: readonly TokenId[];
  readonly text: "A" | "B" | null;
}

type Template = readonly Part[];

const first: Part = { type: 0, tokens: [], text: "A" };
const second: Part = { type: 1, tokens: [], text: "B" };
interface Templates {
  readonly single: Template;
  readonly pair: Template;
}

/** Templates of a file without a post-processor. */
const usual: Templates = { single: [first], pair: [first, second] };

/** Reads a post-processor; refuses unknown kinds by name. */
export function postProcessorOf(component: unknown): PostProcessor {
  const { single, pair } = flattened(component, "processors").reduce((before, stage) => {
    if (stage.type === "ByteLevel") return before; // only moves offsets
    return templatesOf(stage);
  }, usual);
  const textAt = single.findIndex(({ text }) => text !== null);
  const tokensOf = (parts: Template): TokenId[] => parts.flatMap(({ tokens }) => tokens);
  return {
    before: tokensOf(single.slice(0, Math.max(0, textAt))),
    after: tokensOf(single.slice(textAt + 1)),
    pair(a, b) {
      const tokens: TokenId[] = [];
      let secondAt = -1;
      for (const part of pair) {
        if (part.type > 0 && secondAt < 0) secondAt = tokens.length;
        for (const token of part.text === null ? part.tokens : part.text === "A" ? a : b) tokens.push(token);
      }
      return { tokens, secondAt: Math.max(0, secondAt) };
    },
  };
}

function templatesOf(stage: JsonObject): Templates {
  const special = (name: "cls" | "sep", type: number): Part => ({
    type,
    tokens: [Number((stage[name] as [string, number])[1])],
    text: null,
  });
  switch (stage.type) {
    case "TemplateProcessing": {
      const ids = (stage.special_tokens ?? {}) as Record<string, { ids?: TokenId[] }>;
      const read = (template: unknown): Template =>
        ((template ?? []) as { SpecialToken?: TemplateItem; Sequence?: TemplateItem }[]).map((item): Part => {
          const { SpecialToken: token, Sequence: text } = item;
          if (text !== undefined)
            return { type: text.type_id, tokens: [], text: text.id === "B" ? "B" : "A" };
          return { type: token!.type_id, tokens: ids[token!.id]?.ids ?? [], text: null };
        });
      const pair = read(stage.pair);
      return { single: read(stage.single), pair: pair.length === 0 ? usual.pair : pair };
    }
    case "BertProcessing":
      return {
        single: [special("cls", 0), first, special("sep", 0)],
        pair: [special("cls", 0), first, special("sep", 0), second, special("sep", 1)],
      };
    case "RobertaProcessing": {
      const other: Part = { ...second, type: 0 };
      const [begin, end] = [special("cls", 0), special("sep", 0)];
      return { single: [begin, first, end], pair: [begin, first, end, end, other, end] };
    }
    default:
      throw new TokenizerError(
        `tokenizer.json: post-processor ${JSON.stringify(stage.type)} is not supported`,
      );
  }
}

interface TemplateItem {
  readonly id: string;
  readonly type_id: number;
}

import type { TokenId } from "../../../base/token.ts";
import type { ChatTemplate } from "../../../text/template.ts";
import type { Tokenizer } from "../../../text/tokenizer.ts";
import { badRequest } from "../../http/errors.ts";
import {
  type ChatPrompt,
  chatPromptTokens,
  type PromptServices,
  promptTokens,
  refuseBusy,
  refuseEnormous,
} from "../../request/prompt.ts";
import { Fields, refusal } from "../fields.ts";
import { thinkingOf } from "../thinking.ts";
import { messagesOf, promptEndOf, tokensOf } from "./inputs.ts";
import { modelOf } from "./schema.ts";
import { toolsOf } from "./tools.ts";

/** A request to /tokenize, by its shape. */
type TokenizeRequest =
  | {
      readonly kind: "prompt";
      readonly text: string;
      readonly addSpecialTokens: boolean;
      readonly wantsSpellings: boolean;
    }
  | { readonly kind: "messages"; readonly prompt: ChatPrompt; readonly wantsSpellings: boolean }
  | {
      readonly kind: "content";
      readonly text: string;
      readonly options: { readonly addSpecialTokens: boolean; readonly parseControlText: boolean };
      readonly wantsPieces: boolean;
    };

type Body = Readonly<Record<string, unknown>>;
type Served = Pick<PromptServices, "model" | "template">;

/** Reads the three shapes: `{prompt}` and `{messages}` as in vLLM, `{content}` as in llama-server. */
export function parseTokenize(body: Body, { model, template }: Served): TokenizeRequest {
  const fields = new Fields(body);
  modelOf(fields, model);
  const given = ["prompt", "messages", "content"].filter((name) => fields.has(name));
  if (given.length !== 1) {
    throw badRequest(
      `exactly one of prompt, messages and content must be given, but ${given.join(" and ") || "none"} was`,
      given[0] ?? "prompt",
    );
  }
  if (given[0] === "content") {
    const text = fields.string("content")!;
    const options = {
      addSpecialTokens: fields.boolean("add_special") ?? false,
      parseControlText: fields.boolean("parse_special") ?? true,
    };
    return { kind: "content", text, options, wantsPieces: fields.boolean("with_pieces") === true };
  }
  const wantsSpellings = fields.boolean("return_token_strs") ?? false;
  if (given[0] === "prompt") {
    const addSpecialTokens = fields.boolean("add_special_tokens") ?? true;
    return { kind: "prompt", text: fields.string("prompt")!, addSpecialTokens, wantsSpellings };
  }
  return { kind: "messages", prompt: parseTemplated(fields, template), wantsSpellings };
}

/** Reads a conversation and what its template is given. */
export function parseTemplated(fields: Fields, template: ChatTemplate | null): ChatPrompt {
  const messages = messagesOf(fields);
  const end = promptEndOf(fields);
  const tools = toolsOf(fields);
  const { templateArguments } = thinkingOf(fields, template, tools.length > 0);
  return { messages, tools, ...end, templateArguments };
}

/** POST /tokenize: each shape is answered in its own. */
export async function answerTokenize(body: Body, services: PromptServices): Promise<object> {
  const request = parseTokenize(body, services);
  if (request.kind === "content") return tokenizeContent(request, services);
  const tokens =
    request.kind === "prompt"
      ? await promptTokens(request.text, request.addSpecialTokens, services)
      : await chatPromptTokens(request.prompt, services);
  return {
    count: tokens.length,
    max_model_len: services.model.contextMax,
    tokens,
    token_strs: request.wantsSpellings
      ? tokens.map((token) => services.tokenizer.spellingOf(token) ?? "")
      : null,
  };
}

async function tokenizeContent(
  { text, options, wantsPieces }: TokenizeRequest & { readonly kind: "content" },
  services: PromptServices,
): Promise<object> {
  const { tokenizer, encoder } = services;
  refuseEnormous([text], "content", services);
  const tokens = await encoder.encode(text, options).catch(refuseBusy);
  if (!wantsPieces) return { tokens };
  return { tokens: tokens.map((id) => ({ id, piece: pieceOf(id, tokenizer) })) };
}

/** Text, or bytes if the token is only a part of a scalar. */
function pieceOf(token: TokenId, tokenizer: Tokenizer): string | number[] {
  const bytes = tokenizer.bytesOf(token);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return [...bytes];
  }
}

/** Reads the tokens of a request to /detokenize. */
export function parseDetokenize(body: Body, { model }: Pick<PromptServices, "model">): readonly TokenId[] {
  const fields = new Fields(body);
  modelOf(fields, model);
  const list = fields.list("tokens", model.contextMax, { type: "integer" });
  if (list === undefined) throw refusal("tokens", "an array of token ids", undefined);
  return tokensOf(list, "tokens", model.vocabSize);
}

/** POST /detokenize. The answer holds the text under both names that clients look for. */
export function answerDetokenize(body: Body, services: PromptServices): object {
  const text = services.tokenizer.decode(parseDetokenize(body, services), { skipSpecialTokens: false });
  return { prompt: text, content: text };
}

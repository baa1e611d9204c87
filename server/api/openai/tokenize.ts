import type { TokenId } from "../../../base/token.ts";
import type { Tokenizer } from "../../../text/tokenizer.ts";
import { badRequest } from "../../http/errors.ts";
import {
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

/**
 * POST /tokenize in three shapes, each answered in its own: `{prompt}` and `{messages}` as in vLLM,
 * `{content}` as in llama-server.
 */
export async function answerTokenize(
  body: Readonly<Record<string, unknown>>,
  services: PromptServices,
): Promise<object> {
  const fields = new Fields(body);
  modelOf(fields, services.model);
  const given = ["prompt", "messages", "content"].filter((name) => fields.raw(name) !== undefined);
  if (given.length !== 1) {
    throw badRequest(
      `exactly one of prompt, messages and content must be given, but ${given.join(" and ") || "none"} was`,
      given[0] ?? "prompt",
    );
  }
  if (given[0] === "content") return tokenizeContent(fields, services);
  const tokens =
    given[0] === "prompt" ? await tokensOfPrompt(fields, services) : await tokensOfMessages(fields, services);
  const wantsSpellings = fields.boolean("return_token_strs") ?? false;
  return {
    count: tokens.length,
    max_model_len: services.model.contextMax,
    tokens,
    token_strs: wantsSpellings ? tokens.map((token) => services.tokenizer.spellingOf(token) ?? "") : null,
  };
}

function tokensOfPrompt(fields: Fields, services: PromptServices): Promise<readonly TokenId[]> {
  return promptTokens(fields.string("prompt")!, fields.boolean("add_special_tokens") ?? true, services);
}

function tokensOfMessages(fields: Fields, services: PromptServices): Promise<readonly TokenId[]> {
  const messages = messagesOf(fields);
  const end = promptEndOf(fields);
  const tools = toolsOf(fields);
  const { templateArguments } = thinkingOf(fields, services.template, tools.length > 0);
  return chatPromptTokens({ messages, tools, ...end, templateArguments }, services);
}

async function tokenizeContent(fields: Fields, services: PromptServices): Promise<object> {
  const { tokenizer, encoder } = services;
  const content = fields.string("content")!;
  refuseEnormous([content], "content", services);
  const options = {
    addSpecialTokens: fields.boolean("add_special") ?? false,
    parseControlText: fields.boolean("parse_special") ?? true,
  };
  const tokens = await encoder.encode(content, options).catch(refuseBusy);
  if (fields.boolean("with_pieces") !== true) return { tokens };
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

/** POST /detokenize. The answer holds the text under both names that clients look for. */
export function answerDetokenize(body: Readonly<Record<string, unknown>>, services: PromptServices): object {
  const fields = new Fields(body);
  modelOf(fields, services.model);
  const list = fields.list("tokens", services.model.contextMax);
  if (list === undefined) throw refusal("tokens", "an array of token ids", undefined);
  const tokens = tokensOf(list, "tokens", services.model.vocabSize);
  const text = services.tokenizer.decode(tokens, { skipSpecialTokens: false });
  return { prompt: text, content: text };
}

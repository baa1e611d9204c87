import { yieldIfSpent } from "../../../base/time-slice.ts";
import type { TokenId } from "../../../base/token.ts";
import type { TokenEntry } from "../../answer/events.ts";
import type { WholeAnswer } from "../../answer/whole.ts";
import { expectFits, expectTellable, type PromptServices } from "../../request/prompt.ts";
import { expectRepeatable } from "../answer-bounds.ts";
import { completionTokens } from "../fill.ts";
import type { PreparedRequest } from "../respond.ts";
import { type ChoiceFormat, openaiCodec } from "./codec.ts";
import { type CompletionLogprobs, completionLogprobs, echoed, promptLogprobsJson } from "./logprobs.ts";
import type { CompletionRequest } from "./schema.ts";

/** POST /v1/completions. Choices are numbered prompt by prompt. */
export async function prepareCompletion(
  services: PromptServices,
  request: CompletionRequest,
): Promise<PreparedRequest> {
  const prompts = await Promise.all(
    request.prompts.map(async (prompt, index) => {
      const tokens = await completionTokens(prompt, request.fill, request.addSpecialTokens, services);
      const param = request.prompts.length === 1 ? "prompt" : `prompt[${index}]`;
      expectFits(tokens, request.generation, param, services);
      return tokens;
    }),
  );
  const { choices, promptLogprobs } = request.generation;
  expectTellable(prompts, promptLogprobs, choices);
  expectRepeatable(prompts, choices, (request.echo ? 1 : 0) + (request.returnTokenIds ? 1 : 0));
  const echoes: string[] = [];
  for (const [index, prompt] of request.prompts.entries()) {
    if (typeof prompt === "string") echoes.push(prompt);
    else if (!request.echo) echoes.push("");
    else {
      echoes.push(services.tokenizer.decode(prompts[index]!, { skipSpecialTokens: false }));
      await yieldIfSpent();
    }
  }
  return {
    prompts,
    options: request.generation,
    isStream: request.stream,
    codec: () => openaiCodec(request, completionFormat(request, prompts, echoes)),
    ...(request.isEchoOnly ? { shown: promptAlone } : {}),
  };
}

/** Removes the one generated token from an answer that echoes its prompt alone. */
function promptAlone(answer: WholeAnswer): WholeAnswer {
  const finish = { reason: "length", stopReason: null } as const;
  const none = { parts: [], text: "", tokens: [], finish };
  return {
    ...answer,
    choices: answer.choices.map((choice) => ({ ...choice, ...none, logprobs: choice.logprobs && [] })),
    usage: { ...answer.usage, completionTokens: 0, reasoningTokens: 0 },
  };
}

function completionFormat(
  request: CompletionRequest,
  prompts: readonly (readonly TokenId[])[],
  echoes: readonly string[],
): ChoiceFormat {
  const { returnTokenIds, tokensAsIds, echo, promptLogprobs: promptTop } = request;
  const promptOf = (index: number) => Math.floor(index / request.generation.choices);
  const logprobsOf = (
    prompt: number,
    own: readonly TokenEntry[],
    promptLogprobs: WholeAnswer["promptLogprobs"],
  ): CompletionLogprobs =>
    completionLogprobs(
      echo
        ? echoed(promptLogprobs![prompt]!, echoes[prompt]!, own, request.generation.sampling.topLogprobs!)
        : own,
      tokensAsIds,
    );
  return {
    id: `cmpl-${crypto.randomUUID().replaceAll("-", "")}`,
    objectName: "text_completion",
    chunkObjectName: "text_completion",
    extras: () => ({}),
    whole: (index, { text, tokens, logprobs, finish }, { promptLogprobs }) => ({
      index,
      text: echo ? echoes[promptOf(index)]! + text : text,
      logprobs: logprobs === null ? null : logprobsOf(promptOf(index), logprobs, promptLogprobs),
      ...(promptTop === null
        ? {}
        : { prompt_logprobs: promptLogprobsJson(promptLogprobs![promptOf(index)]!, promptTop) }),
      finish_reason: finish.reason,
      stop_reason: finish.stopReason,
      ...(returnTokenIds ? { prompt_token_ids: prompts[promptOf(index)], token_ids: tokens } : {}),
    }),
    opening: (index) => {
      if (!echo && !returnTokenIds) return null;
      const text = echo ? echoes[promptOf(index)]! : "";
      const ids = returnTokenIds ? `,"prompt_token_ids":${JSON.stringify(prompts[promptOf(index)])}` : "";
      return `{"index":${index},"text":${JSON.stringify(text)},"logprobs":null,"finish_reason":null${ids}}`;
    },
    delta: ({ choice, parts, tokens, logprobs }) => {
      const text = parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
      if (text === "" && logprobs === null && !returnTokenIds) return [];
      const logprobsJson =
        logprobs === null ? "null" : JSON.stringify(completionLogprobs(logprobs, tokensAsIds));
      const ids = returnTokenIds ? `,"token_ids":${JSON.stringify(tokens)}` : "";
      return [
        `{"index":${choice},"text":${JSON.stringify(text)},"logprobs":${logprobsJson},"finish_reason":null${ids}}`,
      ];
    },
    around: (index) =>
      returnTokenIds ? null : [`{"index":${index},"text":`, `,"logprobs":null,"finish_reason":null}`],
    closing: (index, { reason, stopReason }) =>
      `{"index":${index},"text":"","logprobs":null,"finish_reason":"${reason}","stop_reason":${JSON.stringify(stopReason)}}`,
  };
}

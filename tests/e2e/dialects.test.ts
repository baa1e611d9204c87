/** Two turns with thoughts and calls in the dialect of every family: the second finds the first in the cache. */
import { expect, test } from "bun:test";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { callForms } from "../../text/formats/call-forms.ts";
import { writtenCalls } from "../../text/formats/written-calls.ts";
import { dialects, THOUGHT } from "../support/dialects.ts";
import { startTestServer } from "./server.ts";

const properties = { city: { type: "string" }, days: { type: "integer" }, exact: { type: "boolean" } };
const parameters = { type: "object", properties, required: ["city"] };
const values = { city: "Rome", days: 3, exact: true };
const tools = ["get_weather", "forecast"].map((name) => ({
  type: "function",
  function: { name, description: "Weather of a city.", parameters },
}));
/** Tokens of a page, the unit of the cache. */
const PAGE = 16;

interface Answered {
  readonly choices: readonly [{ readonly message: Message }];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

interface Message {
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly {
    readonly id: string;
    readonly function: { readonly name: string; readonly arguments: string };
  }[];
}

test.each([...dialects])("%s", async (_, { template, thought, thoughts, calls: name }) => {
  if (name === null) return;
  const form: CallForm = callForms[name];
  const names = form.callsMax === 1 ? ["get_weather"] : ["get_weather", "forecast"];
  const called = names.map((one) => ({ name: one, arguments: values, parameters }));
  const answer = thought + writtenCalls(form, called);
  const server = startTestServer({ template, answers: () => [answer], stepMs: 0 });
  const ask = async (messages: readonly object[]): Promise<Answered> => {
    const response = await fetch(`${server.origin}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "demo", messages, tools }),
    });
    expect(response.status).toBe(200);
    return (await response.json()) as Answered;
  };
  const question = { role: "user", content: "What is the weather in Rome, and what will it be?" };
  const first = await ask([question]);
  const { message } = first.choices[0];
  expect(message.reasoning_content ?? "").toBe(thoughts === null ? "" : THOUGHT);
  expect(
    message.tool_calls?.map(({ function: { name: one, arguments: given } }) => [one, JSON.parse(given)]),
  ).toEqual(names.map((one) => [one, values]));
  const results = message.tool_calls!.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "Sun." }));
  const second = await ask([question, message, ...results]);
  const { prompt_tokens: prompt, completion_tokens: completion } = first.usage;
  const whole = Math.floor((prompt + completion - 2) / PAGE) * PAGE;
  expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(whole);
  await server.close();
});

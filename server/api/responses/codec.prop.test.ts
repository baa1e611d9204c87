import { expect, test } from "bun:test";
import fc from "fast-check";
import { namedEventsIn } from "../../../tests/support/named-events.ts";
import { runs } from "../../../tests/support/property.ts";
import type { ChoiceFinish, Part, TokenEntry, Usage } from "../../answer/events.ts";
import { Gatherer } from "../../answer/whole.ts";
import type { ShownEvent } from "../codec.ts";
import { sealedText } from "../sealed.ts";
import { ResponseCodec, type ResponseObject } from "./codec.ts";

type StreamItem = Readonly<Record<string, unknown>> & { readonly id: string; readonly type: string };

/** All fields of events that clients read. */
interface StreamEvent {
  readonly type: string;
  readonly sequence_number: number;
  readonly item_id: string;
  readonly output_index: number;
  readonly item: StreamItem;
  readonly delta: string;
  readonly logprobs: readonly object[];
  readonly text: string;
  readonly arguments: string;
  readonly input: string;
  readonly part: object;
  readonly response: ResponseObject;
}

/** Rebuilds the response from a stream, as a client does. Throws for events in a wrong order. */
function folded(events: readonly StreamEvent[]): ResponseObject {
  const [created, begun, ...rest] = events;
  expect([created!.type, begun!.type]).toEqual(["response.created", "response.in_progress"]);
  expect(begun!.response).toEqual(created!.response);
  const done: StreamItem[] = [];
  let open: { item: StreamItem; said: string; logprobs: object[]; part: object | null } | null = null;
  for (const [index, event] of events.entries()) expect(event.sequence_number).toBe(index);
  for (const event of rest.slice(0, -1)) {
    const of = event.type.replace(/^response\./, "");
    if (of === "output_item.added") {
      if (open !== null || event.output_index !== done.length) throw new Error("an item within another");
      expect(event.item.status).toBe("in_progress");
      open = { item: event.item, said: "", logprobs: [], part: null };
      continue;
    }
    if (open === null) throw new Error(`${of} of no item`);
    expect(event.output_index).toBe(done.length);
    if (of === "output_item.done") {
      const { id, type } = open.item;
      expect([event.item.id, event.item.type]).toEqual([id, type]);
      if (open.part !== null) expect(event.item.content).toEqual([open.part]);
      done.push(event.item);
      open = null;
      continue;
    }
    expect(event.item_id).toBe(open.item.id);
    if (of.endsWith(".delta")) {
      open.said += event.delta;
      open.logprobs.push(...(event.logprobs ?? []));
    } else if (of === "content_part.done") open.part = event.part;
    else if (of !== "content_part.added") {
      expect(of).toEndWith(".done");
      expect(event.text ?? event.arguments ?? event.input).toBe(open.said);
      if (of === "output_text.done") expect(event.logprobs).toEqual(open.logprobs);
    }
  }
  const { type, response } = events.at(-1)!;
  expect(type).toBe(`response.${response.status}`);
  expect<unknown>(response.output).toEqual(done);
  return response;
}

const text = fc.string({ minLength: 1, unit: "binary" });
/** A call of a function or of a custom tool, whole or truncated. */
const call = fc.record({
  name: fc.constantFrom("f", "custom"),
  arguments: fc.oneof(
    fc.dictionary(fc.string(), fc.jsonValue()).map((values) => JSON.stringify(values)),
    fc.string().map((input) => JSON.stringify({ input })),
    fc.constant('{"input": "cut o'),
  ),
});
/** Reasoning first, then text and calls, in pieces. */
const parts = fc
  .tuple(fc.array(text, { maxLength: 2 }), fc.array(fc.oneof(text, call), { maxLength: 6 }))
  .map(([thoughts, rest]) => {
    let calls = 0;
    const said = rest.flatMap((part): Part[] => {
      if (typeof part === "string") return [{ kind: "text", text: part }];
      const index = calls++;
      const pieces = part.arguments.match(/.{1,4}/gsu) ?? [];
      return [
        { kind: "call", index, name: part.name },
        ...pieces.map((piece) => ({ kind: "arguments", index, text: piece }) as const),
      ];
    });
    return [...thoughts.map((thought) => ({ kind: "reasoning", text: thought }) as const), ...said];
  });
const usage: Usage = { promptTokens: 30, cachedTokens: 16, completionTokens: 5, reasoningTokens: 2 };
const entry: TokenEntry = {
  token: 1,
  text: "a",
  bytes: new Uint8Array([97]),
  logprob: -1,
  top: [],
  textOffset: 0,
};

/** Cuts the parts into deltas of none to three. */
function deltasOf(
  all: readonly Part[],
  sizes: readonly number[],
  logprobs: TokenEntry[] | null,
): ShownEvent[] {
  const deltas: ShownEvent[] = [];
  for (let at = 0, i = 0; at < all.length; i++) {
    const size = sizes[i % sizes.length]!;
    deltas.push({ kind: "delta", choice: 0, parts: all.slice(at, at + size), tokens: [1], logprobs });
    at += size;
  }
  return deltas;
}

test("a stream is, put together as clients do, the whole answer", () => {
  const sizes = fc.array(fc.nat(3), { minLength: 1 }).map((given) => [...given, 1]);
  const finish = fc.constantFrom<ChoiceFinish>(
    { reason: "stop", stopReason: null },
    { reason: "length", stopReason: null },
    { reason: "calls", stopReason: null },
  );
  fc.assert(
    fc.property(parts, sizes, finish, fc.boolean(), fc.boolean(), (all, cuts, end, sealsReasoning, tells) => {
      // Requests with calls have no log probabilities: the parser refuses both together.
      const logprobs =
        tells && all.every(({ kind }) => kind === "text" || kind === "reasoning") ? [entry] : null;
      const events: ShownEvent[] = [
        { kind: "started" },
        ...deltasOf(all, cuts, logprobs),
        { kind: "finish", choice: 0, ...end },
        { kind: "done", usage },
      ];
      const kept: ResponseObject[] = [];
      const facts = {
        key: "0".repeat(32),
        model: "demo",
        echo: {},
        wireCalls: new Map([["custom", { type: "custom_tool_call", name: "custom" } as const]]),
        sealsReasoning,
      };
      const codec = new ResponseCodec(facts, (response) => {
        kept.push(response);
        return response;
      });
      const gatherer = new Gatherer(1, logprobs !== null);
      const whole = events.map((event) => gatherer.take(event)).at(-1)!;
      const answer = { usage: { promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0 } };
      const chunks = events.map((event) => codec.chunk(event, answer));
      const stream = folded(namedEventsIn<StreamEvent>(chunks.join("")));
      const body = codec.body(whole!);
      expect<unknown>({ ...body, completed_at: null }).toEqual({ ...stream, completed_at: null });
      expect(kept.length).toBe(2);
    }),
    runs(200),
  );
});

test("thoughts are an item of their own, before the others", () => {
  const facts = { key: "k", model: "demo", echo: {}, wireCalls: new Map(), sealsReasoning: true };
  const codec = new ResponseCodec(facts, (response) => response);
  const finish: ChoiceFinish = { reason: "stop", stopReason: null };
  const whole = { text: "b", reasoning: "a", calls: [], tokens: [], logprobs: null, finish };
  const thought = { kind: "reasoning", text: "a" } as const;
  const { output } = codec.body({
    choices: [{ ...whole, parts: [thought, { kind: "text", text: "b" }] }],
    usage,
  }) as ResponseObject;
  expect(output).toMatchObject([
    {
      type: "reasoning",
      id: "rs_k_0",
      summary: [],
      content: [{ type: "reasoning_text", text: "a" }],
      encrypted_content: sealedText("a"),
    },
    { type: "message", id: "msg_k_1", content: [{ text: "b" }] },
  ]);
});

import { expect, test } from "bun:test";
import fc from "fast-check";
import { namedEventsIn } from "../../../tests/support/named-events.ts";
import { runs } from "../../../tests/support/property.ts";
import type { AnswerEvent, ChoiceFinish, Part, Usage } from "../../answer/events.ts";
import { Gatherer } from "../../answer/whole.ts";
import type { ShownEvent } from "../codec.ts";
import { messagesCodec } from "./codec.ts";

interface Block {
  readonly type: string;
  readonly text?: string;
  readonly thinking?: string;
  readonly signature?: string;
  readonly input?: unknown;
}

/** All fields of events that clients read. */
interface StreamEvent {
  readonly type: string;
  readonly index: number;
  readonly message: Message;
  readonly content_block: Block;
  readonly delta: {
    readonly text?: string;
    readonly thinking?: string;
    readonly partial_json?: string;
    readonly signature?: string;
    readonly stop_reason?: string;
  };
  readonly usage: object;
}

interface Message {
  readonly id: string;
  readonly content: readonly Block[];
  readonly usage: object;
}

/** Rebuilds the message from a stream, as a client does. Throws for events in a wrong order. */
function folded(events: readonly StreamEvent[]): Message {
  let message: Message | null = null;
  let open: { block: Block; said: string } | null = null;
  let isDone = false;
  const content: Block[] = [];
  for (const event of events) {
    if (isDone) throw new Error(`${event.type} after the end`);
    switch (event.type) {
      case "message_start":
        if (message !== null) throw new Error("two messages");
        message = event.message;
        break;
      case "ping":
        if (message === null) throw new Error("a ping before the message");
        break;
      case "content_block_start":
        if (open !== null || event.index !== content.length) throw new Error("a block within another");
        open = { block: event.content_block, said: "" };
        break;
      case "content_block_delta":
        if (event.delta.signature !== undefined)
          open!.block = { ...open!.block, ...event.delta, type: "thinking" };
        else open!.said += event.delta.text ?? event.delta.thinking ?? event.delta.partial_json!;
        break;
      case "content_block_stop": {
        const { block, said } = open!;
        if (block.type === "text") content.push({ ...block, text: said });
        else if (block.type === "thinking") content.push({ ...block, thinking: said });
        else content.push({ ...block, input: said === "" ? {} : JSON.parse(said) });
        open = null;
        break;
      }
      case "message_delta":
        if (open !== null) throw new Error("a block that has no end");
        message = { ...message!, ...event.delta, content, usage: event.usage };
        break;
      case "message_stop":
        isDone = true;
        break;
      default:
        throw new Error(`an event ${event.type}`);
    }
  }
  expect(isDone).toBe(true);
  return message!;
}

const text = fc.string({ minLength: 1, unit: "binary" });
const textPart = fc.record({ kind: fc.constantFrom("text" as const, "reasoning" as const), text });
const callParts = fc.tuple(fc.dictionary(fc.string(), fc.jsonValue()), fc.nat(20));
/** Calls in two pieces, or without arguments. */
const parts = fc.array(fc.oneof(textPart, callParts), { maxLength: 8 }).map((given) => {
  let calls = 0;
  return given.flatMap((part): Part[] => {
    if (!Array.isArray(part)) return [part];
    const index = calls++;
    const json = JSON.stringify(part[0]);
    const pieces = part[1] === 0 ? [] : [json.slice(0, part[1]), json.slice(part[1])];
    const told = pieces.filter((piece) => piece !== "");
    return [
      { kind: "call", index, name: "f" },
      ...told.map((piece): Part => ({ kind: "arguments", index, text: piece })),
    ];
  });
});
const finish = fc.constantFrom<ChoiceFinish>(
  { reason: "stop", stopReason: null },
  { reason: "stop", stopReason: "END" },
  { reason: "stop", stopReason: 7 },
  { reason: "length", stopReason: null },
  { reason: "calls", stopReason: null },
  { reason: "calls", stopReason: "END" },
);
const usage: Usage = { promptTokens: 30, cachedTokens: 16, completionTokens: 5, reasoningTokens: 2 };

/** Cuts the parts into deltas of none to three. */
function deltasOf(all: readonly Part[], sizes: readonly number[]): AnswerEvent[] {
  const deltas: AnswerEvent[] = [];
  for (let at = 0, i = 0; at < all.length; i++) {
    const size = sizes[i % sizes.length]!;
    deltas.push({ kind: "delta", choice: 0, parts: all.slice(at, at + size), tokens: [], logprobs: null });
    at += size;
  }
  return deltas;
}

test("a stream is, put together as clients do, the whole answer", () => {
  const sizes = fc.array(fc.nat(3), { minLength: 1 }).map((given) => [...given, 1]);
  fc.assert(
    fc.property(
      parts,
      sizes,
      finish,
      fc.nat(30),
      fc.boolean(),
      (all, cuts, end, markedTokens, omitsThoughts) => {
        const events: ShownEvent[] = [
          { kind: "started" },
          ...(deltasOf(all, cuts) as ShownEvent[]),
          { kind: "finish", choice: 0, ...end },
          { kind: "done", usage },
        ];
        const codec = messagesCodec({ model: "demo", omitsThoughts, markedTokens }, "req_1");
        const gatherer = new Gatherer(1, false);
        const whole = events.map((event) => gatherer.take(event)).at(-1)!;
        const stream = namedEventsIn<StreamEvent>(
          events.map((event) => codec.chunk(event, { usage })).join(""),
        );
        expect<unknown>(folded(stream)).toEqual(codec.body(whole));
      },
    ),
    runs(500),
  );
});

test("why an answer ends, and which tokens of its prompt were new", () => {
  const bodyOf = (end: ChoiceFinish, markedTokens: number) => {
    const codec = messagesCodec({ model: "demo", omitsThoughts: false, markedTokens }, "req_1");
    const choice = { parts: [], text: "", reasoning: "", calls: [], tokens: [], logprobs: null, finish: end };
    return codec.body({ choices: [choice], usage }) as Record<string, unknown>;
  };
  const endings: [ChoiceFinish, string, string | null][] = [
    [{ reason: "stop", stopReason: null }, "end_turn", null],
    [{ reason: "stop", stopReason: 7 }, "end_turn", null],
    [{ reason: "stop", stopReason: "END" }, "stop_sequence", "END"],
    [{ reason: "length", stopReason: null }, "max_tokens", null],
    [{ reason: "calls", stopReason: "END" }, "tool_use", null],
  ];
  for (const [end, stop_reason, stop_sequence] of endings) {
    expect(bodyOf(end, 0)).toMatchObject({ stop_reason, stop_sequence });
  }
  const counts = (input_tokens: number, cache_creation_input_tokens: number) => ({
    input_tokens,
    cache_creation_input_tokens,
    cache_read_input_tokens: 16,
    output_tokens: 5,
    output_tokens_details: { thinking_tokens: 2 },
  });
  expect(bodyOf(endings[0]![0], 0).usage).toEqual(counts(14, 0));
  expect(bodyOf(endings[0]![0], 10).usage).toEqual(counts(14, 0)); // they are in the cache already
  expect(bodyOf(endings[0]![0], 20).usage).toEqual(counts(10, 4));
  expect(bodyOf(endings[0]![0], 30).usage).toEqual(counts(0, 14));
});

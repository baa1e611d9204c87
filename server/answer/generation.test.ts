import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import fc from "fast-check";
import type { Cancel, Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import { compileConstraint } from "../../grammar/compile.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import {
  chatService,
  type EngineId,
  type Sampled,
  type SampleRow,
  type SequenceId,
  type Service,
  type Step,
  type StepResult,
} from "../../scheduler/core.ts";
import type { Device, DeviceSpec } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { Fleet } from "../../scheduler/fleet/fleet.ts";
import { sampling } from "../../simulation/factories.ts";
import { runs } from "../../tests/support/property.ts";
import { callForms } from "../../text/formats/call-forms.ts";
import { loadTokenizer } from "../../text/tokenizer.ts";
import { CacheAccount } from "./cache-account.ts";
import type { AnswerFailure, ChoiceFinish, Delta, Part, Usage } from "./events.ts";
import type { Generation, GenerationRequest } from "./generation.ts";
import { Generator } from "./generator.ts";

const tokenizer = loadTokenizer(join(import.meta.dir, "../../tests/reference/tokenizers/qwen"));
const eos = tokenizer.tokenOf("<|im_end|>")!;
const start = tokenizer.tokenOf("<|im_start|>")!;

const spec: DeviceSpec = {
  name: "scripted",
  pages: 64,
  pageTokens: 16,
  stepTokensMax: 64,
  stepChunksMax: 8,
  contextMax: 512,
  vocabSize: tokenizer.vocabSize,
};

/**
 * Returns scripted tokens, chosen by the seed's low word and the output position; end tokens after the last.
 */
class ScriptedDevice implements Device {
  readonly spec = spec;
  readonly #scripts: ReadonlyMap<number, readonly (TokenId | "failed")[]>;
  #done: (() => void) | null = null;
  onStep: StepResult["kind"] = "done";

  constructor(scripts: ReadonlyMap<number, readonly (TokenId | "failed")[]>) {
    this.#scripts = scripts;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    this.#done = () => {
      if (this.onStep !== "done") done({ kind: this.onStep, reason: "scripted" });
      else done({ kind: "done", sampled: step.chunks.flatMap((chunk) => this.#draw(chunk)), deviceMs: 1 });
    };
  }

  /** Ends the step in flight; false when there is none. */
  finishStep(): boolean {
    const done = this.#done;
    this.#done = null;
    done?.();
    return done !== null;
  }

  close(): void {}

  #draw({ sequence, samples }: Step["chunks"][number]): Sampled[] {
    return samples.flatMap((sample) => (sample.wants === "hidden" ? [] : this.#drawRow(sequence, sample)));
  }

  #drawRow(sequence: SequenceId, sample: SampleRow): Sampled[] {
    const { seed, topLogprobs } = sample.sampling;
    const token = this.#scripts.get(seed[0])?.[sample.position] ?? eos;
    if (token === "failed") return [{ kind: "failed", sequence, reason: "logits are not finite" }];
    const top = Array.from({ length: topLogprobs ?? 0 }, (_, i) => ({ token: token + i, logprob: -1 - i }));
    return [{ kind: "token", sequence, token, logprobs: topLogprobs === null ? null : { logprob: -1, top } }];
  }
}

const stillClock: Clock = { nowMs: () => 0, after: (): Cancel => () => {} };

/** Events that a listener received, in order. */
interface Heard {
  /** Kinds of events, with the choice if they have one. */
  readonly events: string[];
  /** Deltas by choice. */
  readonly deltas: Delta[][];
  readonly finishes: (ChoiceFinish | undefined)[];
  usage: Usage | null;
  failure: AnswerFailure | null;
}

interface Rig {
  readonly device: ScriptedDevice;
  readonly engine: Engine;
  readonly fleet: Fleet;
  readonly generator: Generator;
  /** Starts one request; `onDelta` may act on the generation. */
  begin(
    request: Partial<GenerationRequest>,
    onDelta?: (generation: Generation, heard: Heard) => void,
  ): { generation: Generation; heard: Heard };
  /** Runs steps until no work is left. */
  settle(): Promise<void>;
}

function rig(
  scripts: Readonly<Record<number, readonly (TokenId | "failed")[]>>,
  options: { readonly queueMax?: number } = {},
): Rig {
  const device = new ScriptedDevice(
    new Map(Object.entries(scripts).map(([seed, script]) => [Number(seed), script])),
  );
  const engine: Engine = new Engine(device, stillClock, { integrity: "always", ...options }, (report) =>
    fleet.report(0 as EngineId, report),
  );
  const fleet: Fleet = new Fleet([{ link: { send: (message) => engine.receive(message) }, spec }]);
  const facts = { contextMax: spec.contextMax, eosTokens: [eos] };
  const compile = async (source: ConstraintSource) => {
    const { grammar, ignored } = compileConstraint(source);
    return { constraint: { id: JSON.stringify(source), grammar }, ignored };
  };
  const account = new CacheAccount(fleet, [spec], () => {});
  const generator = new Generator(fleet, tokenizer, facts, compile, account);
  return {
    device,
    engine,
    fleet,
    generator,
    begin(changes, onDelta) {
      const request: GenerationRequest = {
        prompts: [[5, 6, 7]],
        choices: 1,
        sampling: sampling({ temperature: 1 }),
        tokensMax: null,
        tokensMin: 0,
        stopStrings: [],
        stopTokens: [],
        ignoreEos: false,
        includeStopString: false,
        skipSpecialTokens: true,
        cacheSalt: "",
        adapter: 0,
        service: chatService,
        tenant: "",
        ...changes,
      };
      const heard: Heard = {
        events: [],
        deltas: Array.from({ length: request.prompts.length * request.choices }, () => []),
        finishes: Array.from({ length: request.prompts.length * request.choices }),
        usage: null,
        failure: null,
      };
      const generation = generator.generate(request, (event) => {
        heard.events.push("choice" in event ? `${event.kind} ${event.choice}` : event.kind);
        if (event.kind === "delta") {
          heard.deltas[event.choice]!.push(event);
          onDelta?.(generation, heard);
        } else if (event.kind === "finish") {
          heard.finishes[event.choice] = { reason: event.reason, stopReason: event.stopReason };
        } else if (event.kind === "done") heard.usage = event.usage;
        else if (event.kind === "failed") heard.failure = event.failure;
      });
      return { generation, heard };
    },
    async settle() {
      await Promise.resolve(); // a generation starts right after `generate`
      engine.run();
      while (device.finishStep()) engine.run();
    },
  };
}

const textOf = (deltas: readonly Delta[], kind: "text" | "reasoning" = "text"): string =>
  deltas
    .flatMap(({ parts }) => parts)
    .map((part) => (part.kind === kind ? part.text : ""))
    .join("");
const tokensOf = (text: string): TokenId[] => tokenizer.encode(text, { addSpecialTokens: false });
const eachOne = (text: string): TokenId[] => [...Buffer.from(text)].flatMap(byteToken);
const byteTokens = new Map(
  Array.from({ length: tokenizer.vocabSize }, (_, id) => [tokenizer.bytesOf(id), id] as const)
    .filter(([bytes]) => bytes.length === 1)
    .map(([bytes, id]) => [bytes[0]!, id]),
);

function byteToken(byte: number): TokenId[] {
  return [byteTokens.get(byte)!];
}

describe("how a choice ends", () => {
  const answer = tokensOf("Hello, world.");

  test("by the model's end token: not text, counted, no stop reason", async () => {
    const { begin, settle } = rig({ 0: answer });
    const { heard } = begin({});
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe("Hello, world.");
    expect(heard.finishes).toEqual([{ reason: "stop", stopReason: null }]);
    expect(heard.usage).toEqual({
      promptTokens: 3,
      completionTokens: answer.length + 1,
      reasoningTokens: 0,
      cachedTokens: 0,
    });
    expect(heard.events.at(0)).toBe("started");
    expect(heard.events.slice(-2)).toEqual(["finish 0", "done"]);
  });

  test("by its length, with all its text", async () => {
    const { begin, settle } = rig({ 0: answer });
    const { heard } = begin({ tokensMax: answer.length, stopStrings: ["world.!"] });
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe("Hello, world.");
    expect(heard.finishes).toEqual([{ reason: "length", stopReason: null }]);
  });

  test("by the end of the context when no length was given", async () => {
    const { begin, settle } = rig({ 0: Array.from({ length: 600 }, () => answer[0]!) });
    const { heard } = begin({});
    await settle();
    expect(heard.finishes).toEqual([{ reason: "length", stopReason: null }]);
    expect(heard.usage!.completionTokens).toBe(spec.contextMax - 3);
  });

  test("by a stop token of the request, which is told", async () => {
    const { begin, settle } = rig({ 0: answer });
    const { heard } = begin({ stopTokens: [answer[2]!] });
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe(tokenizer.decode(answer.slice(0, 2), { skipSpecialTokens: true }));
    expect(heard.finishes).toEqual([{ reason: "stop", stopReason: answer[2]! }]);
  });

  test("by a stop string, cut off or kept; the sequence is aborted", async () => {
    for (const includeStopString of [false, true]) {
      const { begin, settle, fleet, engine } = rig({ 0: eachOne("one two three four") });
      const { heard } = begin({ stopStrings: ["thr", "o th"], includeStopString });
      await settle();
      expect(textOf(heard.deltas[0]!)).toBe(includeStopString ? "one two th" : "one tw");
      expect(heard.finishes).toEqual([{ reason: "stop", stopReason: "o th" }]);
      expect(heard.usage!.completionTokens).toBe("one two th".length);
      expect(fleet.active).toBe(0);
      expect(engine.busy).toBe(false);
    }
  });

  test("ignoring the model's end token shows nothing of it and goes on", async () => {
    const { begin, settle } = rig({ 0: [answer[0]!, eos, start, answer[1]!] });
    const { heard } = begin({ ignoreEos: true, tokensMax: 4 });
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe(tokenizer.decode(answer.slice(0, 2), { skipSpecialTokens: true }));
    expect(heard.finishes).toEqual([{ reason: "length", stopReason: null }]);
    const shown = rig({ 0: [answer[0]!, eos, start] });
    const other = shown.begin({ ignoreEos: true, tokensMax: 3, skipSpecialTokens: false });
    await shown.settle();
    expect(textOf(other.heard.deltas[0]!)).toEndWith("<|im_end|><|im_start|>");
  });

  test("a control token that is a mark is read, the others are not", async () => {
    const { begin, settle } = rig({ 0: [start, answer[0]!, eos, start, answer[1]!, answer[2]!] });
    const thinking = { opening: "<|im_start|>", closing: "<|im_start|>", isOpen: false, tokensMax: null };
    const { heard } = begin({ ignoreEos: true, tokensMax: 6, format: { calls: null, thinking } });
    await settle();
    const textFrom = (from: number, to: number) =>
      tokenizer.decode(answer.slice(from, to), { skipSpecialTokens: true });
    expect(textOf(heard.deltas[0]!, "reasoning")).toBe(textFrom(0, 1).trim());
    expect(textOf(heard.deltas[0]!)).toBe(textFrom(1, 3));
    expect(heard.usage!.reasoningTokens).toBe(4);
  });

  test("no stop string counts before the least number of tokens", async () => {
    const { begin, settle } = rig({ 0: eachOne("a.b.c.d.") });
    const { heard } = begin({ tokensMin: 4, stopStrings: ["."] });
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe("a.b.c");
  });

  test("in the middle of a scalar, with U+FFFD as a whole-text decode would", async () => {
    const { begin, settle } = rig({ 0: eachOne("né€").slice(0, -1) });
    const { heard } = begin({});
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe("né\uFFFD");
  });
});

describe("choices", () => {
  test("choice i draws with seed + i, and each ends by itself", async () => {
    const { begin, settle } = rig({ 41: tokensOf("first"), 42: tokensOf("second choice"), 43: [] });
    const seed = { seed: [41, 0] as const };
    const { heard } = begin({ choices: 3, sampling: { ...sampling({ temperature: 1 }), ...seed } });
    await settle();
    expect(heard.deltas.map((deltas) => textOf(deltas))).toEqual(["first", "second choice", ""]);
    expect(heard.finishes).toEqual(Array.from({ length: 3 }, () => ({ reason: "stop", stopReason: null })));
    expect(heard.events.filter((event) => event === "done").length).toBe(1);
  });

  test("the seed carries into its high word", async () => {
    const { begin, settle } = rig({ 0: tokensOf("carried") });
    const { heard } = begin({
      choices: 2,
      sampling: { ...sampling({ temperature: 1 }), seed: [0xffffffff, 0xffffffff] },
    });
    await settle();
    expect(heard.deltas.map((deltas) => textOf(deltas))).toEqual(["", "carried"]);
  });

  test("several prompts are one answer, whose choices are numbered through and whose usage is their sum", async () => {
    const { begin, settle, generator } = rig({ 0: tokensOf("first"), 1: tokensOf("second") });
    const { heard } = begin({
      prompts: [
        [5, 6, 7],
        [8, 9],
      ],
      choices: 2,
    });
    await settle();
    expect(heard.deltas.map((deltas) => textOf(deltas))).toEqual(["first", "second", "first", "second"]);
    expect(heard.usage!.promptTokens).toBe(5);
    expect(heard.events.filter((event) => event === "started" || event === "done")).toEqual([
      "started",
      "done",
    ]);
    expect(generator.active).toBe(0);
  });

  test("calls are parts of their own, streamed after their names, and end a choice as calls", async () => {
    const call = (city: string) =>
      `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
    const script = eachOne(`Let me look.\n${call("Rome")}\n${call("Oslo")}`);
    const { begin, settle } = rig({ 0: script });
    const functions = [{ name: "weather", parameters: null, isStrict: false }];
    const calls = { functions, callsMax: null, mayTalk: true, param: "tools" };
    const format = { calls: callForms.Hermes, thinking: null };
    const all = begin({ calls, format });
    const cut = begin({ calls, format, tokensMax: script.length - 19 });
    const none = begin({ format });
    await settle();
    const partsOf = ({ heard }: typeof all) => heard.deltas[0]!.flatMap(({ parts }) => parts);
    const argumentsOf = (parts: readonly Part[], index: number) =>
      parts.flatMap((part) => (part.kind === "arguments" && part.index === index ? [part.text] : []));
    for (const index of [0, 1]) {
      const pieces = argumentsOf(partsOf(all), index);
      expect(pieces.join("")).toBe(`{"city": "${index === 0 ? "Rome" : "Oslo"}"}`);
      expect(pieces.length).toBe(pieces.join("").length); // each delta is one character
    }
    expect(partsOf(all).filter(({ kind }) => kind === "call")).toEqual([
      { kind: "call", index: 0, name: "weather" },
      { kind: "call", index: 1, name: "weather" },
    ]);
    expect(argumentsOf(partsOf(cut), 1).join("")).toBe('{"city": "O');
    expect([all, cut, none].map(({ heard }) => heard.finishes[0]!.reason)).toEqual([
      "calls",
      "length",
      "stop",
    ]);
    expect([all, cut].map(({ heard }) => textOf(heard.deltas[0]!))).toEqual(["Let me look.", "Let me look."]);
    expect(partsOf(none).every(({ kind }) => kind === "text")).toBe(true);
  });

  describe("a stop string beside calls", () => {
    const call = '<tool_call>\n{"name": "weather", "arguments": {"city": "New Paris city"}}\n</tool_call>';
    const functions = [{ name: "weather", parameters: null, isStrict: false }];
    const calls = { functions, callsMax: null, mayTalk: true, param: "tools" };
    const format = { calls: callForms.Hermes, thinking: null };
    /** Parts of an answer with one token per character, and of one with long tokens. */
    const toldOf = async (text: string, more: Partial<GenerationRequest>) => {
      const { begin, settle } = rig({ 0: eachOne(text), 1: tokensOf(text) });
      const { heard } = begin({ calls, format, choices: 2, ...more });
      await settle();
      const all = heard.deltas.map((deltas) => {
        const parts = deltas.flatMap(({ parts }) => parts);
        const json = parts.map((part) => (part.kind === "arguments" ? part.text : "")).join("");
        const names = parts.flatMap((part) => (part.kind === "call" ? [part.name] : []));
        const tokens = deltas.flatMap((delta) => delta.tokens);
        return [textOf(deltas), names, json, tokenizer.decode(tokens, { skipSpecialTokens: true })] as const;
      });
      const [one, other] = all.map((told, index) => [...told.slice(0, 3), heard.finishes[index]!] as const);
      expect(other).toEqual(one!);
      return { told: one!, decoded: all.map(([, , , decoded]) => decoded) };
    };
    const arguments_ = '{"city": "New Paris city"}';

    test("is not looked for in their names, arguments and marks", async () => {
      const stopStrings = ["Paris", "weather", "tool_call", '"', "}", "\n", "<"];
      const { told, decoded } = await toldOf(call, { stopStrings });
      expect(told).toEqual(["", ["weather"], arguments_, { reason: "calls", stopReason: null }]);
      expect(decoded).toEqual([call, call]);
    });

    test("ends the text before them, whose tokens are then the last", async () => {
      const { told, decoded } = await toldOf(`So, Paris? No.\n${call}`, { stopStrings: ["Paris"] });
      expect(told).toEqual(["So, ", [], "", { reason: "stop", stopReason: "Paris" }]);
      for (const one of decoded) expect("So, P").toStartWith(one);
      const kept = await toldOf(`So, Paris? No.\n${call}`, {
        stopStrings: ["Paris"],
        includeStopString: true,
      });
      expect(kept.told[0]).toBe("So, Paris");
    });

    test("ends the text behind them", async () => {
      const { told } = await toldOf(`${call}\nThat was Paris.`, { stopStrings: ["Paris"] });
      const finish = { reason: "calls", stopReason: "Paris" } as const;
      expect(told).toEqual(["\nThat was ", ["weather"], arguments_, finish]);
    });

    test("does not begin before a call and end in it, or behind it", async () => {
      const stopStrings = ["See<tool", 'See{"city', "See then", "See\n then", "ee\nthen"];
      const { told } = await toldOf(`See${call}then`, { stopStrings });
      expect(told).toEqual(["Seethen", ["weather"], arguments_, { reason: "calls", stopReason: null }]);
    });

    test("is found in what looked like a call and is none", async () => {
      const { told } = await toldOf("A <tool_call or Paris", { stopStrings: ["call o"] });
      expect(told).toEqual(["A <tool_", [], "", { reason: "stop", stopReason: "call o" }]);
    });

    test("may be white space, which ends the text only where no call follows", async () => {
      const stopStrings = ["\n\n"];
      const { told } = await toldOf("One.\n\nTwo.", { stopStrings });
      expect(told).toEqual(["One.", [], "", { reason: "stop", stopReason: "\n\n" }]);
      expect((await toldOf(`One.\n\n${call}`, { stopStrings })).told[1]).toEqual(["weather"]);
      expect((await toldOf("One.\n\n", { stopStrings })).told).toEqual(told);
    });

    test("is not looked for where calls are forced", async () => {
      const forced = { calls: { ...calls, mayTalk: false, callsMax: 1 } };
      const { told } = await toldOf(call, { ...forced, stopStrings: ["Paris", "\n"] });
      expect(told).toEqual(["", ["weather"], arguments_, { reason: "calls", stopReason: null }]);
    });
  });

  test("thoughts come before the answer, are counted, and hold no stop string", async () => {
    const script = eachOne("<think>\nTwo.\n\nSo END four? </think>\n\nFour. END of it");
    const { begin, settle } = rig({ 0: script, 1: eachOne("No thoughts.") });
    const thinking = { opening: "<think>", closing: "</think>", isOpen: false, tokensMax: null };
    const format = { calls: null, thinking };
    const { heard } = begin({ format, choices: 2, stopStrings: ["END"] });
    const plain = begin({});
    await settle();
    expect(heard.deltas.map((deltas) => textOf(deltas, "reasoning"))).toEqual(["Two.\n\nSo END four?", ""]);
    expect(heard.deltas.map((deltas) => textOf(deltas))).toEqual(["Four. ", "No thoughts."]);
    expect(heard.finishes.map((finish) => finish!.stopReason)).toEqual(["END", null]);
    const thoughts = "<think>\nTwo.\n\nSo END four? </think>";
    expect(heard.usage!.reasoningTokens).toBe(thoughts.length);
    expect(textOf(plain.heard.deltas[0]!)).toStartWith("<think>");
    expect(plain.heard.usage!.reasoningTokens).toBe(0);
  });

  test("cached tokens are those of the first choice", async () => {
    const { begin, settle } = rig({});
    const promptTokens = Array.from({ length: 100 }, (_, i) => i);
    const first = begin({ prompts: [promptTokens] });
    await settle();
    const second = begin({ prompts: [promptTokens], choices: 2 });
    await settle();
    expect(first.heard.usage!.cachedTokens).toBe(0);
    expect(second.heard.usage!.cachedTokens).toBe(99);
  });
});

describe("logprobs", () => {
  const request = { sampling: { ...sampling({ temperature: 1 }), topLogprobs: 2 } };

  test("one entry per token of the text, with bytes and offsets in scalars", async () => {
    const tokens = [...tokensOf("a🐦"), ...tokensOf(" b")];
    const { begin, settle } = rig({ 0: tokens });
    const { heard } = begin(request);
    await settle();
    const entries = heard.deltas[0]!.flatMap((delta) => delta.logprobs!);
    expect(entries.map((entry) => entry.token)).toEqual(tokens);
    expect(Buffer.concat(entries.map((entry) => entry.bytes)).toString()).toBe("a🐦 b");
    expect(entries.every((entry) => entry.top.length === 2 && entry.logprob === -1)).toBe(true);
    expect(entries[0]!.textOffset).toBe(0);
    expect(entries.at(-1)!.textOffset).toBe(2);
    expect(heard.deltas[0]!.map((delta) => delta.tokens.length)).toEqual(
      heard.deltas[0]!.map((delta) => delta.logprobs!.length),
    );
  });

  test("tokens of a stop string that was cut off have none", async () => {
    const { begin, settle } = rig({ 0: eachOne("abcSTOPxyz") });
    const { heard } = begin({ ...request, stopStrings: ["STOP"] });
    await settle();
    const entries = heard.deltas[0]!.flatMap((delta) => delta.logprobs!);
    expect(entries.map((entry) => entry.text).join("")).toBe("abc");
  });

  test("not asked for, not there", async () => {
    const { begin, settle } = rig({ 0: tokensOf("abc") });
    const { heard } = begin({});
    await settle();
    expect(heard.deltas[0]!.every((delta) => delta.logprobs === null)).toBe(true);
  });
});

describe("refusals and failures", () => {
  test("a prompt that can never fit is told after generate returned", async () => {
    const { begin, settle, generator } = rig({});
    const { heard } = begin({ prompts: [Array.from({ length: 512 }, () => 1)] });
    expect(heard.failure).toBeNull();
    await settle();
    expect(heard.failure).toEqual({ kind: "neverFits", needed: 513, limit: 512 });
    expect(heard.events).toEqual(["failed"]);
    expect(generator.active).toBe(0);
  });

  test("a full queue", async () => {
    const { begin, settle } = rig({}, { queueMax: 1 });
    const first = begin({});
    const second = begin({});
    await settle();
    expect(first.heard.failure).toBeNull();
    expect(second.heard.failure).toEqual({ kind: "queueFull", needed: 2, limit: 1 });
  });

  test("one failing choice ends the request, and the others' pages are free", async () => {
    const { begin, settle, fleet, engine } = rig({ 0: tokensOf("a long and healthy answer"), 1: ["failed"] });
    const { heard } = begin({ choices: 2 });
    await settle();
    expect(heard.failure).toEqual({ kind: "engineFailed", message: "logits are not finite" });
    expect(heard.events.filter((event) => event === "failed" || event === "done")).toEqual(["failed"]);
    expect(heard.events.at(-1)).toBe("failed");
    expect([fleet.active, engine.busy]).toEqual([0, false]);
  });

  test("a lost device", async () => {
    const { begin, settle, device } = rig({ 0: tokensOf("never finished") });
    const { heard } = begin({});
    device.onStep = "lost";
    await settle();
    expect(heard.failure).toEqual({ kind: "engineFailed", message: "scripted" });
    const later = begin({});
    await settle();
    expect(later.heard.failure).toEqual({ kind: "engineFailed", message: "scripted" });
  });
});

describe("readers that leave or lag", () => {
  const long = Array.from({ length: 400 }, (_, i) => byteTokens.get(97 + (i % 26))!);

  test("abort ends the events in every state and may be called again", async () => {
    for (const at of [0, 1, 5]) {
      const { begin, settle, fleet, generator, engine } = rig({ 0: long });
      let count = 0;
      const { generation, heard } = begin({}, (self) => {
        if (++count === at) self.abort("reader");
      });
      if (at === 0) generation.abort("reader");
      await settle();
      expect(heard.deltas[0]!.length).toBe(at);
      expect(heard.events.at(-1)).toBe("failed");
      expect(heard.failure).toEqual({ kind: "aborted", by: "reader" });
      expect([fleet.active, generator.active, engine.busy]).toEqual([0, 0, false]);
      generation.abort("reader");
      generation.pause();
      generation.resume();
      await settle();
      expect(heard.deltas[0]!.length).toBe(at);
    }
  });

  test("abort after the end does nothing", async () => {
    const { begin, settle } = rig({ 0: tokensOf("done") });
    const { generation, heard } = begin({});
    await settle();
    const events = [...heard.events];
    generation.abort("reader");
    await settle();
    expect(heard.events).toEqual(events);
  });

  test("pause stops the tokens within a step, resume brings the rest, nothing is lost", async () => {
    const { begin, settle } = rig({ 0: long });
    const { generation, heard } = begin({}, (self, { deltas }) => {
      if (deltas[0]!.length === 10) self.pause();
    });
    await settle();
    expect(heard.deltas[0]!.length).toBeLessThanOrEqual(11);
    generation.resume();
    await settle();
    expect(textOf(heard.deltas[0]!)).toBe(tokenizer.decode(long, { skipSpecialTokens: true }));
    expect(heard.events.at(-1)).toBe("done");
  });
});

test("concatenated deltas are the non-streamed text, whatever the tokens and stop strings", async () => {
  const letters = fc.constantFrom("a", "b", "é", "小", "🐦", "\uFFFD");
  const tokens = fc.array(
    fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...eachOne("ab é小🐦")) }, // scalars cut anywhere
      { weight: 2, arbitrary: fc.constantFrom(...tokensOf("ab é小🐦 ab"), start) },
      {
        weight: 1,
        arbitrary: fc.integer({ min: 0, max: tokenizer.vocabSize - 1 }).filter((id) => id !== eos),
      },
    ),
    { maxLength: 60 },
  );
  const stopStrings = fc.array(
    fc.array(letters, { minLength: 1, maxLength: 4 }).map((all) => all.join("")),
    { maxLength: 3 },
  );
  await fc.assert(
    fc.asyncProperty(tokens, stopStrings, fc.boolean(), async (script, stops, includeStopString) => {
      const { begin, settle } = rig({ 0: script });
      const { heard } = begin({
        stopStrings: stops,
        includeStopString,
        sampling: sampling({ temperature: 1, topLogprobs: 0 }),
      });
      await settle();
      const whole = tokenizer.decode(script, { skipSpecialTokens: true });
      const found = firstStop(whole, stops);
      const expected = found === null ? whole : whole.slice(0, includeStopString ? found.end : found.start);
      const deltas = heard.deltas[0]!;
      expect(textOf(deltas)).toBe(expected);
      expect(heard.finishes[0]).toEqual({ reason: "stop", stopReason: found?.stop ?? null });
      deltas.slice(0, -1).forEach((delta) => {
        expect(textOf([delta])).not.toBe("");
      });
      for (const delta of deltas) expect(textOf([delta]).isWellFormed()).toBe(true);
      const told = deltas.flatMap((delta) => delta.tokens);
      expect(told).toEqual(script.slice(0, told.length));
      if (found === null) expect(told).toEqual(script);
    }),
    runs(1000),
  );
});

test("the choices of a request are one task group of their own, and its tenant goes along", async () => {
  const { fleet, begin, settle } = rig({});
  const services: Service[] = [];
  const { submit, submitTaskGroup } = fleet;
  fleet.submit = (call, listener) => {
    services.push(call.service);
    return submit.call(fleet, call, listener);
  };
  fleet.submitTaskGroup = (calls, listeners) => {
    services.push(...calls.map(({ service }) => service));
    return submitTaskGroup.call(fleet, calls, listeners);
  };
  begin({ tenant: "key 1" });
  begin({ choices: 2, tenant: "key 2" });
  begin({ choices: 2 });
  await settle();
  expect(services.map(({ taskGroup, tenant }) => ({ taskGroup, tenant }))).toEqual([
    { taskGroup: null, tenant: "key 1" },
    { taskGroup: 0, tenant: "key 2" },
    { taskGroup: 0, tenant: "key 2" },
    { taskGroup: 1, tenant: "" },
    { taskGroup: 1, tenant: "" },
  ]);
});

/** The stop string that ends first in a text, the longest of those. */
function firstStop(
  text: string,
  stops: readonly string[],
): { stop: string; start: number; end: number } | null {
  const ends = stops
    .map((stop) => ({ stop, start: text.indexOf(stop), end: text.indexOf(stop) + stop.length }))
    .filter(({ start: from }) => from >= 0)
    .sort((a, b) => a.end - b.end || b.stop.length - a.stop.length);
  return ends[0] ?? null;
}

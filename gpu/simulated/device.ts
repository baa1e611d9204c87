import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { TokenId } from "../../base/token.ts";
import type {
  AdapterId,
  Chunk,
  ChunkState,
  PageId,
  Sampled,
  SampleRow,
  SequenceId,
  StateSlot,
  Step,
  StepResult,
  TokenLogprobs,
} from "../../scheduler/core.ts";
import { type CostModel, shapeOf } from "../../scheduler/cost/cost-model.ts";
import type { Device, DeviceSpec } from "../../scheduler/device.ts";

/**
 * Candidate tokens of a row, best first; the device draws the first allowed one. `context` is all tokens of
 * the sequence up to the row: its prompt and the `row.position` drawn tokens.
 */
export type Script = (
  sequence: SequenceId,
  row: SampleRow,
  context: ArrayLike<TokenId>,
) => readonly TokenId[];

/**
 * Device without a model that still detects paging errors.
 *
 * Each page slot stores its token and a hash, which stands for keys and values. The hash is of the adapter and the
 * whole context up to the token. A chunk reads its context through its page table, as attention would. A slot that was never written, or
 * that was computed after another prefix or with another adapter, breaks an invariant. The sampled token is a hash of the context,
 * the seed and the output position. Tokens are therefore right exactly if paging, caching, copying and
 * chunking are right; they do not depend on the batch or on time.
 *
 * With a draft model each page slot also stores the context hash with which the draft model computed it. A
 * chunk that the draft model computes without all tokens before it breaks an invariant.
 *
 * Each state slot stores the hash of the context that its state has seen, and its length. A chunk that begins
 * from the state of another context or length breaks an invariant: for example, one that computes a token
 * twice.
 */
export class SimulatedDevice implements Device {
  readonly spec: DeviceSpec;
  readonly #clock: Clock;
  readonly #costs: CostModel;
  readonly #fault: (step: Step) => StepResult | null;
  readonly #script: Script;
  /**
   * Token and context hash per slot, at page × pageTokens + offset; a hash of 0 marks a slot that was never
   * written.
   */
  readonly #tokens: Int32Array;
  readonly #contexts: Int32Array;
  /** Context hash per slot, as the draft model computed it. */
  readonly #read: Int32Array;
  /** Context hash and length per state slot. */
  readonly #states: Int32Array;
  readonly #lengths: Int32Array;
  #isInFlight = false;
  #isClosed = false;

  /**
   * `fault` may replace a step's result: `retry`, `lost` and `aborted`, or `done` with failed rows. If no
   * candidate of `script` is allowed, the device draws as it does without a script.
   */
  constructor(
    spec: DeviceSpec,
    clock: Clock,
    costs: CostModel,
    fault: (step: Step) => StepResult | null = () => null,
    script: Script = () => [],
  ) {
    this.spec = spec;
    this.#clock = clock;
    this.#costs = costs;
    this.#fault = fault;
    this.#script = script;
    this.#tokens = new Int32Array(spec.pages * spec.pageTokens);
    this.#contexts = new Int32Array(spec.pages * spec.pageTokens);
    this.#read = new Int32Array(spec.pages * spec.pageTokens);
    this.#states = new Int32Array(spec.states?.slots ?? 0);
    this.#lengths = new Int32Array(spec.states?.slots ?? 0);
  }

  start(step: Step, done: (result: StepResult) => void): void {
    assert(!this.#isInFlight && !this.#isClosed, "one step at a time, and none after close");
    checkStep(step, this.spec);
    this.#isInFlight = true;
    const draftsMs = this.#draftsMs(step);
    const deviceMs = this.#costs.stepMs(shapeOf(step)) + draftsMs;
    this.#clock.after(deviceMs, () => {
      this.#isInFlight = false;
      if (this.#isClosed) return;
      const fault = this.#fault(step);
      // An aborted step has written partial results; the simulated one has written all of them.
      const computed =
        fault === null || fault.kind === "aborted" ? this.#compute(step, deviceMs, draftsMs) : null;
      done(fault ?? computed!);
    });
  }

  /** Returns a copy of a page's contents: its tokens, their context hashes, and those of the draft model. */
  read(page: PageId): Int32Array {
    const { pageTokens } = this.spec;
    const start = page * pageTokens;
    const contents = new Int32Array(3 * pageTokens);
    for (const [index, part] of this.#parts.entries())
      contents.set(part.subarray(start, start + pageTokens), index * pageTokens);
    return contents;
  }

  /** Replaces a page's contents by those that `read` returned for another page. */
  write(page: PageId, contents: Int32Array): void {
    const { pageTokens } = this.spec;
    for (const [index, part] of this.#parts.entries())
      part.set(contents.subarray(index * pageTokens, (index + 1) * pageTokens), page * pageTokens);
  }

  get #parts(): readonly Int32Array[] {
    return [this.#tokens, this.#contexts, this.#read];
  }

  /** Marks all slots of a page as never written. */
  spoil(page: PageId): void {
    this.write(page, new Int32Array(3 * this.spec.pageTokens));
  }

  /** Returns a copy of a state slot's contents: the hash of its context, and its length. */
  readState(slot: StateSlot): Int32Array {
    return Int32Array.of(this.#states[slot]!, this.#lengths[slot]!);
  }

  /** Replaces a state slot's contents by those that `readState` returned for another slot. */
  writeState(slot: StateSlot, contents: Int32Array): void {
    this.#states[slot] = contents[0]!;
    this.#lengths[slot] = contents[1]!;
  }

  /** Marks a state slot as never written. */
  spoilState(slot: StateSlot): void {
    this.writeState(slot, new Int32Array(2));
  }

  /** Closes the device and drops a step in flight. */
  close(): void {
    this.#isClosed = true;
  }

  /** Time of drafting: the draft model's share of a decode step, for each token of the longest draft. */
  #draftsMs({ chunks }: Step): number {
    const { draftModel } = this.spec;
    const drafts = chunks.reduce((most, chunk) => Math.max(most, chunk.drafts ?? 0), 0);
    if (draftModel === undefined || drafts === 0) return 0;
    return drafts * draftModel.share * this.#costs.stepMs({ prompts: [], decodes: 1, decodeContext: 0 });
  }

  #compute(step: Step, deviceMs: number, draftsMs: number): StepResult {
    const { pageTokens } = this.spec;
    for (const { from, to, count } of step.moves) {
      const source = from * pageTokens;
      for (const part of this.#parts) part.copyWithin(to * pageTokens, source, source + count);
    }
    const sampled: Sampled[] = [];
    for (const chunk of step.chunks) {
      const { hashes, context } = this.#attend(chunk);
      if (chunk.state !== undefined) this.#advance(chunk, chunk.state, hashes);
      const first = sampled.length;
      for (const row of chunk.samples) {
        const hash = hashes[row.afterIndex]!;
        if (row.wants === "hidden") {
          const hidden = hiddenOf(hash, this.spec.hidden!.size);
          sampled.push({ kind: "hidden", sequence: chunk.sequence, hidden });
          continue;
        }
        const known = context.subarray(0, chunk.start + row.afterIndex + 1);
        const wanted = this.#script(chunk.sequence, row, known);
        sampled.push(draw(chunk, row, wanted, hash, this.spec.vocabSize));
      }
      const valid = this.#lastValid(chunk, sampled, first);
      if (this.spec.draftModel !== undefined) this.#prefillDraftModel(chunk, valid);
      if (chunk.drafts !== undefined && valid >= 0) this.#draft(chunk, hashes, sampled, first + valid, valid);
    }
    return { kind: "done", sampled, deviceMs, ...(draftsMs === 0 ? {} : { draftsMs }) };
  }

  /**
   * Computes a chunk with the draft model. If the chunk drafts, stops at the last valid row, whose index is
   * `valid`.
   */
  #prefillDraftModel({ start, tokens, pages, samples, unread, drafts }: Chunk, valid: number): void {
    if (unread === null) {
      assert(drafts === undefined, "a draft model computes the chunk that it drafts behind");
      return;
    }
    const { pageTokens } = this.spec;
    const unreadFrom = start - (unread?.length ?? 0);
    assert(unreadFrom >= start - (start % pageTokens), "unread tokens are of one page");
    const known = drafts === undefined || valid < 0 ? tokens.length : samples[valid]!.afterIndex + 1;
    for (let position = 0; position < start + known; position++) {
      const slot = pages[Math.floor(position / pageTokens)]! * pageTokens + (position % pageTokens);
      if (position >= unreadFrom) this.#read[slot] = this.#contexts[slot]!;
      assert(
        this.#read[slot] === this.#contexts[slot],
        "a draft model has computed all tokens before its chunk",
      );
      if (position >= unreadFrom && position < start)
        assert(this.#tokens[slot] === unread![position - unreadFrom], "unread tokens are those of the page");
    }
  }

  /**
   * Index of a chunk's last valid row (all draft tokens before it were accepted), -1 for none. The chunk's
   * results begin at `first`.
   */
  #lastValid({ samples, tokens }: Chunk, sampled: readonly Sampled[], first: number): number {
    let last = -1;
    for (const [index, { afterIndex }] of samples.entries()) {
      const one = sampled[first + index]!;
      if (one.kind !== "token") break;
      last = index;
      if (tokens[afterIndex + 1] !== one.token) break;
    }
    return last;
  }

  /**
   * Adds a draft to the result `sampled[at]` of row `row`. Most draft tokens equal the greedy choice, so most
   * are accepted.
   */
  #draft({ samples, drafts }: Chunk, hashes: Int32Array, sampled: Sampled[], at: number, row: number): void {
    const drawn = sampled[at]! as Extract<Sampled, { readonly kind: "token" }>;
    let hash = extend(hashes[samples[row]!.afterIndex]!, drawn.token);
    const guesses = Array.from({ length: drafts! }, () => {
      const isRight = ((hash >>> 8) & 7) < 6;
      const token = ((hash >>> 0) + (isRight ? 0 : 1)) % this.spec.vocabSize;
      hash = extend(hash, token);
      return { token, probability: isRight ? 0.9 : 0.4 };
    });
    sampled[at] = {
      ...drawn,
      drafts: {
        tokens: guesses.map(({ token }) => token),
        probabilities: guesses.map(({ probability }) => probability),
      },
    };
  }

  /**
   * Advances a chunk's state over its tokens, and saves copies at the requested counts. `hashes`: context up
   * to each token.
   */
  #advance({ start, tokens, pages }: Chunk, { slot, from, saves }: ChunkState, hashes: Int32Array): void {
    if (from !== null) {
      const { pageTokens } = this.spec;
      const last = pages[Math.floor((start - 1) / pageTokens)]! * pageTokens + ((start - 1) % pageTokens);
      assert(this.#lengths[from] === start, "a chunk begins where its state ends");
      assert(this.#states[from] === this.#contexts[last], "a state belongs to the context it is read in");
    }
    for (const { count, slot: to } of [...saves, { count: tokens.length, slot }]) {
      this.#states[to] = hashes[count - 1]!;
      this.#lengths[to] = start + count;
    }
  }

  /**
   * Reads the context of a chunk and writes its tokens. Returns the context hash at each token, and all
   * tokens up to the last one.
   */
  #attend({ start, tokens, pages, adapter }: Chunk): { hashes: Int32Array; context: Int32Array } {
    const { pageTokens } = this.spec;
    const context = new Int32Array(start + tokens.length);
    let hash = emptyContext(adapter);
    for (let position = 0; position < start; position++) {
      const slot = pages[Math.floor(position / pageTokens)]! * pageTokens + (position % pageTokens);
      context[position] = this.#tokens[slot]!;
      hash = extend(hash, context[position]!);
      assert(this.#contexts[slot] !== 0, "keys and values are written before they are read");
      assert(this.#contexts[slot] === hash, "keys and values belong to the context they are read in");
    }
    context.set(tokens, start);
    const hashes = new Int32Array(tokens.length);
    for (let i = 0; i < tokens.length; i++) {
      const position = start + i;
      const slot = pages[Math.floor(position / pageTokens)]! * pageTokens + (position % pageTokens);
      hash = extend(hash, tokens[i]!);
      this.#tokens[slot] = tokens[i]!;
      this.#contexts[slot] = hash;
      this.#read[slot] = 0;
      hashes[i] = hash;
    }
    return { hashes, context };
  }
}

/** Asserts everything that csrc/include/engine.h requires of a step. */
function checkStep(step: Step, spec: DeviceSpec): void {
  const { pageTokens } = spec;
  assert(step.chunks.length <= spec.stepChunksMax, "chunks in a step");
  const isPage = (page: number): boolean => page >= 0 && page < spec.pages;
  for (const { from, to, count, tier } of step.moves) {
    assert(isPage(from) && isPage(to) && from !== to && count >= 1 && count < pageTokens, "a move");
    assert(tier === "device", "a move's tier");
  }
  const sequences = new Set(step.chunks.map((chunk) => chunk.sequence));
  assert(sequences.size === step.chunks.length, "one chunk per sequence");
  let tokensTotal = 0;
  const written = new Set<number>();
  for (const { start, tokens, pages, samples, adapter } of step.chunks) {
    tokensTotal += tokens.length;
    assert(Number.isSafeInteger(adapter) && adapter >= 0, "a chunk's adapter");
    assert(
      samples.every(
        ({ afterIndex }, i) =>
          afterIndex >= (i === 0 ? 0 : samples[i - 1]!.afterIndex + 1) && afterIndex < tokens.length,
      ),
      "rows follow tokens of their chunk, and rise",
    );
    assert(tokens.length >= 1 && start >= 0 && start + tokens.length <= spec.contextMax, "a chunk's range");
    assert(pages.length === Math.ceil((start + tokens.length) / pageTokens), "a chunk's pages");
    assert(pages.every(isPage), "page ids");
    assert(
      tokens.every((token) => token >= 0 && token < spec.vocabSize),
      "token ids",
    );
    for (const page of pages.subarray(Math.floor(start / pageTokens))) {
      assert(!written.has(page), "no page is written by two chunks");
      written.add(page);
    }
  }
  assert(tokensTotal <= spec.stepTokensMax, "tokens in a step");
  const rows = step.chunks.flatMap(({ samples }) => samples);
  const hidden = rows.filter(({ wants }) => wants === "hidden").length;
  assert(hidden <= (spec.hidden?.rowsMax ?? 0), "hidden states in a step");
  for (const { start, pages } of step.chunks) {
    for (const page of pages.subarray(0, Math.floor(start / pageTokens))) {
      assert(!written.has(page), "no page that a chunk writes is read by another");
    }
  }
  checkStates(step, spec);
}

/** Asserts that each state slot of a step has one writer, and that no other chunk reads it. */
function checkStates({ chunks }: Step, { states }: DeviceSpec): void {
  const written = new Set<number>();
  for (const { start, tokens, state } of chunks) {
    assert((state === undefined) === (states === undefined), "chunks have states if the device has slots");
    if (state === undefined) continue;
    let last = 0;
    for (const { count } of state.saves) {
      assert(count > last && count <= tokens.length, "saves follow tokens of their chunk, and rise");
      last = count;
    }
    for (const slot of [state.slot, ...state.saves.map((save) => save.slot)]) {
      assert(slot >= 0 && slot < states!.slots, "slots of the device");
      assert(!written.has(slot), "no slot is written twice");
      written.add(slot);
    }
    assert((state.from === null) === (start === 0), "a chunk begins from a state, but at position 0");
  }
  for (const { state } of chunks) {
    if (state === undefined || state.from === null || state.from === state.slot) continue;
    assert(!written.has(state.from), "no slot that a chunk writes is read by another");
  }
}

function draw(
  { sequence }: Chunk,
  row: SampleRow,
  wanted: readonly TokenId[],
  context: number,
  vocabSize: number,
): Sampled {
  const { sampling } = row;
  let hash = context;
  if (sampling.temperature > 0) {
    hash = extend(extend(extend(hash, sampling.seed[0]), sampling.seed[1]), row.position);
  }
  if (row.seen !== null) hash = extend(hash, seenHash(row));
  const token = wanted.find((token) => isAllowed(token, row)) ?? firstAllowed(hash, row, vocabSize);
  if (token === null) return { kind: "failed", sequence, reason: "No token is allowed." };
  const likeliest = wanted[0] ?? (context >>> 0) % vocabSize;
  const logprobs =
    sampling.topLogprobs === null ? null : inventLogprobs(token, likeliest, sampling.topLogprobs, vocabSize);
  return { kind: "token", sequence, token, logprobs };
}

/** First allowed token from `hash` on, cyclically. A bias ≥ 100 forces a token, one ≤ -100 forbids it. */
function firstAllowed(hash: number, row: SampleRow, vocabSize: number): TokenId | null {
  const forced = row.sampling.logitBias.find(([token, bias]) => bias >= 100 && isAllowed(token, row));
  if (forced !== undefined) return forced[0];
  for (let i = 0; i < vocabSize; i++) {
    const token = ((hash >>> 0) + i) % vocabSize;
    if (isAllowed(token, row)) return token;
  }
  return null;
}

function isAllowed(token: TokenId, { banned, allowed, sampling }: SampleRow): boolean {
  if (banned.includes(token)) return false;
  if (allowed !== null && ((allowed[token >>> 5]! >>> (token & 31)) & 1) === 0) return false;
  return !sampling.logitBias.some(([other, bias]) => other === token && bias <= -100);
}

/** Order-independent hash of the seen tokens. */
function seenHash({ seen }: SampleRow): number {
  let sum = 0;
  for (let i = 0; i < seen!.length; i++) sum = (sum + extend(seen!.tokens[i]!, seen!.counts[i]!)) | 0;
  return sum;
}

/** Top log probabilities: `likeliest`, which depends on the context alone, then the next ids, cyclically. */
function inventLogprobs(token: TokenId, likeliest: TokenId, count: number, vocabSize: number): TokenLogprobs {
  const top = Array.from({ length: Math.min(count, vocabSize) }, (_, rank) => ({
    token: (likeliest + rank) % vocabSize,
    logprob: -0.5 - rank,
  }));
  return { logprob: -0.5 - ((token - likeliest + vocabSize) % vocabSize), top };
}

/** Numbers in [-1, 1] that depend only on the context. */
function hiddenOf(context: number, size: number): Float32Array {
  return Float32Array.from({ length: size }, (_, i) => extend(context, i) / 2 ** 31);
}

/** Hash of the context without tokens. An adapter has up to 48 bits, all of which count. */
function emptyContext(adapter: AdapterId): number {
  return adapter === 0 ? 1 : extend(extend(1, adapter | 0), Math.floor(adapter / 2 ** 32));
}

/** Hash of a context with one more token; never 0. */
function extend(context: number, token: number): number {
  let x = Math.imul(context ^ (token + 0x7ed55d16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return x ^ (x >>> 15) || 1;
}

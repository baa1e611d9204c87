import { assert } from "../base/assert.ts";
import type { EngineId, Step } from "../scheduler/core.ts";
import { shapeOf } from "../scheduler/cost/cost-model.ts";
import { servedAdmission } from "../scheduler/engine/admission-rule.ts";
import { BUCKET, COST_MIN } from "../scheduler/engine/queue/response-ratio.ts";
import { causeIndex, totalMs } from "../scheduler/explain/causes.ts";
import type { Fleet } from "../scheduler/fleet/fleet.ts";
import { checkIndex } from "../scheduler/fleet/integrity.ts";
import { objectives } from "../scheduler/objective.ts";
import type { Policy } from "../scheduler/policy.ts";
import { firstCome } from "./baselines/vllm.ts";
import type { SimulatedClient } from "./client.ts";
import type { SimulatedHost } from "./simulated-host.ts";

/**
 * Milliseconds that a call may wait beyond its proportion of the wait of a call admitted before it
 * (`#compareWaits`).
 */
const PATIENCE_MS = 60_000;

/** Rounding of sums of times. */
const ROUNDING_MS = 1e-3;

/** Events between two walks through all records; a walk per event would dominate a simulation. */
const WALK_EVERY = 64;

/**
 * Watches a simulation and breaks an invariant as soon as the scheduler breaks one of its promises:
 *
 * After every event: time has not gone back; now and then, the records of engines and dispatcher agree.
 * At every step: no empty chunk, one chunk per sequence, no page or state slot written by two, tokens and
 * chunks within the limits of device and policy.
 * At every admission: first come, first served, if the policy says so. By response ratio, no other call of
 * the same tenant has waited out of proportion.
 * At every end: the expected number of tokens, and a cause for all of the time since the arrival.
 * At the end: no call waits or runs, no work is left, and no page counts as cached that is not.
 */
export class Checks {
  readonly #policy: Policy;
  readonly #hosts: readonly SimulatedHost[];
  readonly #fleet: Fleet;
  readonly #linkDelayMs: number;
  #events = 0;
  #nowMs = 0;
  /**
   * Order in which calls were sent to engines (re-sent calls by their new place), and the last admitted one
   * by engine.
   */
  readonly #orders = new Map<number, number>();
  #sent = 0;
  readonly #admitted: number[];
  /** Calls sent to an engine and not admitted yet, with the time of sending, by engine. */
  readonly #waiting: readonly Map<SimulatedClient, number>[];

  constructor(policy: Policy, hosts: readonly SimulatedHost[], fleet: Fleet, linkDelayMs: number) {
    this.#policy = policy;
    this.#linkDelayMs = linkDelayMs;
    this.#fleet = fleet;
    this.#hosts = hosts;
    this.#admitted = hosts.map(() => -1);
    this.#waiting = hosts.map(() => new Map());
  }

  event(nowMs: number): void {
    assert(nowMs >= this.#nowMs, "time does not go back");
    this.#nowMs = nowMs;
    this.#events += 1;
    if (this.#events % WALK_EVERY === 0) this.#walk();
  }

  /** Checks a step that an engine starts. */
  step(engine: EngineId, step: Step): void {
    const { spec } = this.#hosts[engine]!;
    const { chunks } = step;
    assert(chunks.length >= 1 && chunks.length <= spec.stepChunksMax, "a step has chunks, as many as fit");
    assert(new Set(chunks.map(({ sequence }) => sequence)).size === chunks.length, "one chunk per sequence");
    const written = new Set<number>();
    const slots = new Set<number>();
    let tokens = 0;
    for (const chunk of chunks) {
      assert(chunk.tokens.length >= 1, "no chunk is empty");
      const end = chunk.start + chunk.tokens.length;
      assert(end <= spec.contextMax, "no sequence is longer than the device can");
      assert(chunk.pages.length === Math.ceil(end / spec.pageTokens), "pages for every token, and none more");
      for (let page = Math.floor(chunk.start / spec.pageTokens); page < chunk.pages.length; page++) {
        assert(!written.has(chunk.pages[page]!), "no page is written by two chunks");
        written.add(chunk.pages[page]!);
      }
      assert((chunk.state !== undefined) === (spec.states !== undefined), "states if the device has slots");
      for (const { slot } of chunk.state === undefined ? [] : [chunk.state, ...chunk.state.saves]) {
        assert(!slots.has(slot), "no state slot is written by two chunks");
        slots.add(slot);
      }
      tokens += chunk.tokens.length;
    }
    assert(tokens <= spec.stepTokensMax, "no step is larger than the device can");
    const { decodes } = shapeOf(step);
    const { batch } = this.#policy;
    if (batch.kind === "baseline" && batch.isStallFree) {
      assert(tokens <= Math.max(batch.stepTokens, decodes), "the budget, or decodes alone");
    }
  }

  /** Records that a sequence is sent to an engine. */
  sent(call: SimulatedClient): void {
    this.#orders.set(call.index, this.#sent);
    this.#sent += 1;
    this.#leaves(call);
    if (call.engine !== null) this.#waiting[call.engine]!.set(call, this.#nowMs);
  }

  /** Checks the first admission of a sequence. */
  started(call: SimulatedClient): void {
    const { queue, admission } = this.#policy;
    const { index, engine } = call;
    if (engine !== null && queue.kind === "lanes") this.#compareWaits(call, engine);
    this.#leaves(call);
    const { findInFlightPrefix } = admission.rule ?? servedAdmission;
    if (engine === null || queue !== firstCome || findInFlightPrefix === servedAdmission.findInFlightPrefix)
      return;
    const order = this.#orders.get(index)!;
    assert(order > this.#admitted[engine]!, "first come, first served");
    this.#admitted[engine] = order;
  }

  ended(call: SimulatedClient): void {
    const { arrival, tokens, finish, promptTokens, engine } = call;
    this.#leaves(call);
    this.#explained(call);
    if (finish?.kind !== "stop" && finish?.kind !== "length") return;
    const { contextMax, pages, pageTokens } = this.#hosts[engine ?? 0]!.spec;
    const room = Math.min(contextMax, pages * pageTokens) - promptTokens;
    assert(
      tokens.length === Math.min(arrival.outputTokens, room),
      "an answer has as many tokens as were to come",
    );
  }

  /**
   * Checks that no cause has negative time, and that all causes sum to the call's time. For a call that stays
   * on one engine, the cause of handing over must be exactly two link delays: nothing is counted twice or
   * lost.
   */
  #explained({ story, arrivedMs, finishedMs, firstMs, finish, placements }: SimulatedClient): void {
    assert(story !== null, "an end comes with its story");
    const { ms, first } = story;
    for (const parts of first === null ? [ms] : [ms, first.ms])
      assert(
        parts.every((part) => part >= 0),
        "no cause has less than no time",
      );
    assert(Math.abs(totalMs(ms) - (finishedMs - arrivedMs)) < ROUNDING_MS, "causes add up to the whole");
    if (first !== null && firstMs !== null)
      assert(Math.abs(totalMs(first.ms) - (firstMs - arrivedMs)) < ROUNDING_MS, "and to the first token");
    if (placements !== 1 || (finish?.kind !== "stop" && finish?.kind !== "length")) return;
    const linkMs = ms[causeIndex.handing_over]!;
    assert(
      Math.abs(linkMs - 2 * this.#linkDelayMs) < ROUNDING_MS,
      "the engine accounts for each instant once",
    );
  }

  /** Checks the end: all calls are answered and all reports have arrived. */
  end(): void {
    const { active, dispatcher } = this.#fleet;
    this.#walk();
    assert(active === 0, "the fleet waits for no sequence");
    for (const { engine, id } of this.#hosts) {
      assert(!(engine?.busy ?? false), "no engine has anything to do");
      assert(Math.abs(dispatcher.workMs(id)) < 1e-6, "no work is left where no sequence is");
      if (engine !== null && dispatcher.index !== null) this.#compareCaches(id);
    }
  }

  #leaves(call: SimulatedClient): void {
    for (const waiting of this.#waiting) waiting.delete(call);
  }

  /**
   * Checks that no call starves. By response ratio (engine/queue/response-ratio.ts), a call waits at most in
   * proportion to its cost, plus PATIENCE_MS for prompts that it shares or that go before it.
   */
  #compareWaits(call: SimulatedClient, engine: EngineId): void {
    const { tenant, objective, priority, ttftMs } = call.arrival.service;
    if (objectives[objective].isFirstCome || ttftMs !== null) return;
    const waitedMs = this.#nowMs - (this.#waiting[engine]!.get(call) ?? this.#nowMs);
    for (const [other, sentMs] of this.#waiting[engine]!) {
      const { service } = other.arrival;
      if (service.tenant !== tenant || service.objective !== objective) continue;
      if (service.priority !== priority) continue;
      const times = (BUCKET * (COST_MIN + other.promptTokens + other.tokens.length)) / COST_MIN;
      assert(this.#nowMs - sentMs <= times * (waitedMs + 1) + PATIENCE_MS, "no call starves");
    }
  }

  /**
   * Compares cache sizes. The dispatcher knows whole pages only; the last page of a prefix may be partial.
   */
  #compareCaches(id: EngineId): void {
    const known = this.#fleet.dispatcher.index!.pagesCached(id);
    assert(known <= this.#fleet.loads()[id]!.pagesCached, "nothing is taken for cached that is not");
  }

  #walk(): void {
    const { dispatcher } = this.#fleet;
    for (const { engine, id } of this.#hosts) {
      engine?.checkIntegrity();
      assert(dispatcher.workMs(id) > -1e-6, "no engine has less than no work");
    }
    if (dispatcher.index !== null) checkIndex(dispatcher.index, this.#hosts.length);
  }
}

/** An engine's load is cached for placements until an event changes it. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import { runs } from "../../tests/support/property.ts";
import type { EngineId, Objective, SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { idleLoad } from "../messages.ts";
import { objectives } from "../objective.ts";
import { ours } from "../policies.ts";
import { Costs, type Incoming } from "./costs.ts";
import { EngineView } from "./engine-view.ts";
import { Outstanding, type Work } from "./outstanding.ts";
import { PrefixIndex } from "./prefix-index.ts";

const anObjective = fc.constantFrom<Objective>("latency", "gang", "throughput");
const anEvent = fc.record({
  kind: fc.constantFrom("placed", "started", "drew", "raised", "ended", "reported", "none"),
  engine: fc.nat(1),
  objective: anObjective,
  tokens: fc.integer({ min: 1, max: 4000 }),
  which: fc.nat(),
});
type Event = typeof anEvent extends fc.Arbitrary<infer T> ? T : never;

const newView = (): EngineView =>
  new EngineView(deviceSpec(), linearCost(5, 0.02, 16), ours(100).batch, 180_000);

function newWork({ engine, objective, tokens }: Event): Work {
  return {
    engine,
    objective,
    tenant: "",
    hasTarget: tokens % 2 === 0,
    promptUs: tokens,
    pages: 1,
    context: tokens,
    drawn: 0,
    isDecoding: false,
    expected: 10,
    tokensMax: 100,
    prefix: undefined,
    end: null,
  };
}

/** Applies an event to `live`, which is in `work`. */
function happen(event: Event, work: Outstanding, live: Work[]): void {
  const { kind, objective, tokens, which } = event;
  if (kind === "placed") {
    const placed = newWork(event);
    live.push(placed);
    work.placed(placed);
  }
  const at = which % Math.max(1, live.length);
  const other = live[at];
  if (other === undefined) return;
  if (kind === "started") work.started(other, tokens);
  if (kind === "drew") work.drew(other);
  if (kind === "raised") work.raised(other, objective, tokens % 2 === 0);
  if (kind !== "ended") return;
  work.ended(other);
  live.splice(at, 1);
}

test("after any events, costs are those of somebody who looks for the first time", () => {
  const history = fc.array(fc.record({ event: anEvent, asks: anObjective }), { maxLength: 40 });
  fc.assert(
    fc.property(history, (events) => {
      const views = [newView(), newView()];
      const work = new Outstanding(2, objectives);
      const index = new PrefixIndex(2, 180_000);
      const costs = new Costs(views, work, index, 0);
      const live: Work[] = [];
      for (const { event, asks } of events) {
        happen(event, work, live);
        if (event.kind === "reported") views[event.engine]!.reported(idleLoad(deviceSpec()));
        const spec = {
          ...sequenceSpec([1], 1, { service: { objective: asks, tbtMs: 50 } }),
          id: 0 as SequenceId,
        };
        const incoming: Incoming = {
          spec,
          tokens: event.tokens,
          path: new Float64Array(0),
          expected: 10,
          isHint: false,
        };
        const look = (by: Costs) => by.look(incoming, [0, 1] as EngineId[], 0).map((cost) => cost.copy());
        expect(look(costs)).toEqual(look(new Costs([newView(), newView()], work, index, 0)));
      }
    }),
    runs(200),
  );
});

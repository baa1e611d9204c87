import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { call, messageOf } from "../api.ts";
import { duration } from "./request.ts";

interface Quantiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
}

interface Outcome {
  readonly waiting_ms: Quantiles;
  readonly first_token_ms: Quantiles;
  readonly between_tokens_ms: Quantiles;
  readonly total_ms: Quantiles;
  readonly hit_rate: number;
}

/** Response of `POST /v1/what-if`. */
interface WhatIfFacts {
  readonly recorded: {
    readonly calls: number;
    readonly simulated_calls: number;
    readonly seconds: number;
    readonly engines: number;
  };
  readonly changes: { readonly engines: number | null; readonly tbt_ms: number | null };
  readonly before: Outcome;
  readonly after: Outcome;
}

const rows = [
  ["Waiting", "waiting_ms"],
  ["First token", "first_token_ms"],
  ["Between tokens", "between_tokens_ms"],
  ["Whole answer", "total_ms"],
] as const;
const quantiles = ["p50", "p90", "p99"] as const;

/** Fields as typed; an empty field changes nothing. */
const engines = signal("2");
const targetMs = signal("");
const isBusy = signal(false);
const answer = signal<WhatIfFacts | null>(null);
const problem = signal<string | null>(null);

/** Form that simulates the recorded requests with other engines or another target. */
export function WhatIf(): VNode {
  return (
    <section class="card" aria-labelledby="what-if-title">
      <form
        class="head"
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        <h2 id="what-if-title">What if there were</h2>
        <Field id="what-if-engines" label="Engines" max={64} value={engines} />
        <Field
          id="what-if-target"
          label="Target between tokens, ms (0: none)"
          max={60_000}
          value={targetMs}
        />
        <button type="submit" disabled={isBusy.value || (engines.value === "" && targetMs.value === "")}>
          {isBusy.value ? "Simulating …" : "Simulate"}
        </button>
      </form>
      <div aria-live="polite">
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {answer.value !== null && <Comparison facts={answer.value} />}
      </div>
    </section>
  );
}

function Field(given: {
  readonly id: string;
  readonly label: string;
  readonly max: number;
  readonly value: typeof engines;
}): VNode {
  const { id, label, max, value } = given;
  return (
    <label class="choice">
      {label}
      <input
        id={id}
        type="number"
        min={0}
        max={max}
        value={value.value}
        onInput={({ currentTarget }) => {
          value.value = currentTarget.value;
        }}
      />
    </label>
  );
}

function Comparison({ facts }: { readonly facts: WhatIfFacts }): VNode {
  const { recorded, before, after } = facts;
  const { calls, simulated_calls: simulated, seconds, engines: had } = recorded;
  const which =
    simulated < calls ? `The last ${simulated} of ${calls} recorded requests` : `${calls} recorded requests`;
  return (
    <>
      <p class="facts">
        {which}, of {duration(seconds * 1000)} on {had} {had === 1 ? "engine" : "engines"}, simulated as they
        were, and then with the change. Prompts found in the cache: {percent(before)} and then{" "}
        {percent(after)}.
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard */}
      <section class="wide" tabIndex={0} aria-label="Times before and after">
        <table>
          <thead>
            <tr>
              <th />
              {quantiles.map((name) => (
                <th key={name} class="right">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(([words, name]) => (
              <tr key={name}>
                <th scope="row">{words}</th>
                {quantiles.map((quantile) => (
                  <Change key={quantile} from={before[name][quantile]} to={after[name][quantile]} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </>
  );
}

/** Time before and after; marked as better or worse beyond a difference of five percent. */
function Change({ from, to }: { readonly from: number; readonly to: number }): VNode {
  const kind = to < 0.95 * from ? "better" : to > 1.05 * from ? "worse" : "same";
  return (
    <td class={`right ${kind}`}>
      {duration(from)} → {duration(to)}
    </td>
  );
}

function percent({ hit_rate }: Outcome): string {
  return `${Math.round(100 * hit_rate)} %`;
}

async function ask(): Promise<void> {
  isBusy.value = true;
  problem.value = null;
  const change = {
    ...(engines.value === "" ? {} : { engines: Number(engines.value) }),
    ...(targetMs.value === "" ? {} : { tbt_ms: Number(targetMs.value) }),
  };
  try {
    const headers = { "content-type": "application/json" };
    const response = await call("v1/what-if", { method: "POST", headers, body: JSON.stringify(change) });
    answer.value = (await response.json()) as WhatIfFacts;
  } catch (error) {
    answer.value = null;
    const message = messageOf(error);
    problem.value = `${message[0]!.toUpperCase()}${message.slice(1)}.`;
  }
  isBusy.value = false;
}

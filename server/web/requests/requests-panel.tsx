import { signal, useSignalEffect } from "@preact/signals";
import type { VNode } from "preact";
import type { RequestFacts } from "../../explain/request-facts.ts";
import { call, messageOf } from "../api.ts";
import { Panel } from "../panel.tsx";
import { place } from "../store.ts";
import { duration, partsOf } from "./request.ts";
import { Waterfall } from "./waterfall.tsx";

const RENEWED_MS = 2000;
const orders = {
  created: "newest first",
  duration: "longest first",
  first_token: "latest first token",
} as const;

const order = signal<keyof typeof orders>("created");
const slowMs = signal(0);
const requests = signal<readonly RequestFacts[]>([]);
const opened = signal<RequestFacts | null>(null);
/** Sentence in place of the list. */
const problem = signal<string | null>(null);

/** Requests of this tab's key, and the parts of one's time. */
export function RequestsPanel(): VNode {
  useSignalEffect(() => {
    const query = `sort=${order.value}&slow=${slowMs.value}&limit=100`;
    const renew = () => void read(query);
    renew();
    const timer = setInterval(renew, RENEWED_MS);
    return () => clearInterval(timer);
  });
  useSignalEffect(() => {
    void open(place.value.rest);
  });
  return (
    <Panel name="requests">
      {opened.value !== null && <Waterfall request={opened.value} />}
      <section class="card" aria-labelledby="requests-title">
        <div class="head">
          <h2 id="requests-title">Requests</h2>
          <label class="choice">
            Order
            <select
              value={order.value}
              onChange={({ currentTarget }) => {
                order.value = currentTarget.value as keyof typeof orders;
              }}
            >
              {Object.entries(orders).map(([name, words]) => (
                <option key={name} value={name}>
                  {words}
                </option>
              ))}
            </select>
          </label>
          <label class="choice">
            Longer than
            <input
              id="slow"
              type="number"
              min={0}
              step={100}
              value={slowMs.value}
              onChange={({ currentTarget }) => {
                slowMs.value = currentTarget.valueAsNumber || 0;
              }}
            />
            ms
          </label>
        </div>
        {problem.value !== null && <p class="hint">{problem.value}</p>}
        {problem.value === null && requests.value.length === 0 && <p class="hint">None so far.</p>}
        {requests.value.length > 0 && <List />}
      </section>
    </Panel>
  );
}

function List(): VNode {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
    <section class="wide" tabIndex={0} aria-label="List of requests">
      <table>
        <thead>
          <tr>
            <th>Request</th>
            <th>Begun</th>
            <th>Outcome</th>
            <th class="right">First</th>
            <th class="right">Whole</th>
            <th class="right">Prompt</th>
            <th class="right">Found</th>
            <th class="right">Answer</th>
            <th>Most of its time</th>
          </tr>
        </thead>
        <tbody>
          {requests.value.map((request) => (
            <Row key={request.id} request={request} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Row({ request }: { readonly request: RequestFacts }): VNode {
  const { id, status, created, first_token_ms, total_ms, tokens } = request;
  const [longest] = partsOf(request).toSorted((a, b) => b.ms - a.ms);
  const isOpen = place.value.rest === id;
  return (
    <tr aria-current={isOpen ? "true" : undefined}>
      <td>
        <a class="id" title={id} href={isOpen ? "#requests" : `#requests/${encodeURIComponent(id)}`}>
          {id}
        </a>
      </td>
      <td>{new Date(created * 1000).toLocaleTimeString()}</td>
      <td class={status}>{status}</td>
      <td class="right">{duration(first_token_ms)}</td>
      <td class="right">{duration(total_ms)}</td>
      <td class="right">{tokens.prompt}</td>
      <td class="right">{tokens.found.memory + tokens.found.disk}</td>
      <td class="right">{tokens.generated}</td>
      <td>{longest === undefined ? "" : `${longest.words} (${duration(longest.ms)})`}</td>
    </tr>
  );
}

async function read(query: string): Promise<void> {
  try {
    const { data } = (await (await call(`v1/requests?${query}`)).json()) as {
      readonly data: readonly RequestFacts[];
    };
    requests.value = data;
    problem.value = null;
  } catch (error) {
    problem.value = messageOf(error);
  }
}

async function open(id: string): Promise<void> {
  if (id === "") {
    opened.value = null;
    return;
  }
  try {
    opened.value = (await (await call(`v1/requests/${encodeURIComponent(id)}`)).json()) as RequestFacts;
  } catch (error) {
    problem.value = messageOf(error);
  }
}

import { signal, useSignalEffect } from "@preact/signals";
import type { VNode } from "preact";
import type { RequestFacts } from "../../explain/request-facts.ts";
import { call, messageOf } from "../api.ts";
import { Panel } from "../panel.tsx";
import { lists, place, server } from "../store.ts";
import { order, orders, slowMs } from "./query.ts";
import { duration, partsOf } from "./request.ts";
import { Waterfall } from "./waterfall.tsx";
import { WhatIf } from "./what-if.tsx";

const opened = signal<RequestFacts | null>(null);
/** Error sentence in place of the request that was to be opened. */
const problem = signal<string | null>(null);

/** Requests of this tab's key, and the time of one of them by cause. */
export function RequestsPanel(): VNode {
  useSignalEffect(() => {
    void open(place.value.rest);
  });
  const requests = lists.requests.entries.value ?? [];
  return (
    <Panel name="requests">
      {opened.value !== null && <Waterfall request={opened.value} />}
      {server.isAdmin.value === true && <WhatIf />}
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
        {requests.length === 0 && <p class="hint">None so far.</p>}
        {requests.length > 0 && <List requests={requests} />}
      </section>
    </Panel>
  );
}

function List({ requests }: { readonly requests: readonly RequestFacts[] }): VNode {
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
          {requests.map((request) => (
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
      <td class="right">{tokens.found.memory + tokens.found.host + tokens.found.disk}</td>
      <td class="right">{tokens.generated}</td>
      <td>{longest === undefined ? "" : `${longest.words} (${duration(longest.ms)})`}</td>
    </tr>
  );
}

async function open(id: string): Promise<void> {
  problem.value = null;
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

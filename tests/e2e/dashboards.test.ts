/** Queries of our dashboard and alerts, and of vLLM's dashboards, find their series in a scrape. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { OtlpTraces } from "../../server/trace/otlp.ts";
import { KeyTotals } from "../../server/usage/key-totals.ts";
import { UsageLedger } from "../../server/usage/ledger.ts";
import { Collector } from "../support/collector.ts";
import { askedBy, type Selector, samplesOf } from "../support/promql.ts";
import { chatBody, post, startTestServer, type TestServer } from "./server.ts";

const folder = join(import.meta.dir, "../../docs/operate");
/** Labels that Prometheus adds, and its own metric. */
const ADDED = ["job", "instance"];
const OWN = "up";

let collector: Collector;
let traces: OtlpTraces;
let server: TestServer;
let samples: ReturnType<typeof samplesOf>;

beforeAll(async () => {
  collector = new Collector();
  traces = new OtlpTraces({ endpoint: collector.url, version: "0", log: () => {} });
  let steps = 0;
  server = startTestServer({
    traces,
    ledger: new UsageLedger(null, [], new KeyTotals(5, () => null)),
    engine: { retriesMax: 0 },
    // The first request fails.
    fault: () => (steps++ === 0 ? { kind: "retry", reason: "no device" } : null),
    answers: ["It is sunny in Sicily."],
  });
  const ask = async (body: object): Promise<void> => {
    await (await post(server, "/v1/chat/completions", body)).text();
    await server.settled();
  };
  await ask(chatBody("Does it fail?"));
  const first = { role: "user", content: "How is it in Palermo?" };
  const answer = { role: "assistant", content: "It is sunny in Sicily." };
  const next = { role: "user", content: "And in Catania, which is on the other side of the island?" };
  await ask({ model: "demo", messages: [first] });
  await ask({ model: "demo", messages: [first, answer, next], stream: true });
  samples = samplesOf(await (await fetch(`${server.origin}/metrics`)).text());
});
afterAll(async () => {
  await server.close();
  await traces.close();
  await collector.kill();
});

/** Parts of a selector that no sample has. */
function missingOf({ metric, matchers }: Selector, labels: readonly string[]): string[] {
  if (metric === OWN) return [];
  const rows = samples.get(metric);
  if (rows === undefined) return [metric];
  const wanted = [...matchers.map(({ label }) => label), ...labels].filter((label) => !ADDED.includes(label));
  const absent = wanted.filter((label) => rows.every((row) => row[label] === undefined));
  const values = matchers
    .filter(({ label, value }) => !value.includes("$") && !ADDED.includes(label))
    .filter(({ label, operator, value }) => {
      const matches = (row: Readonly<Record<string, string>>): boolean =>
        operator.endsWith("~")
          ? new RegExp(`^(?:${value})$`).test(row[label] ?? "")
          : (row[label] ?? "") === value;
      return rows.every((row) => matches(row) === operator.startsWith("!"));
    });
  return [
    ...absent.map((label) => `${metric} by ${label}`),
    ...values.map(({ label, operator, value }) => `${metric}{${label}${operator}"${value}"}`),
  ];
}

/** Series and labels that a query names and no sample has. */
function missingIn(query: string): string[] {
  const { selectors, labels } = askedBy(query);
  expect(selectors).not.toBeEmpty();
  // Queries of several metrics group and join them by labels that all of them have.
  return selectors.flatMap((selector, at) => missingOf(selector, at === 0 ? labels : []));
}

test("a query's names are found, and what a scrape lacks is noticed", () => {
  const query =
    'sum by (le, engine) (rate(a:b_bucket{x=~"$x", y="2"}[5m])) / on (z) group_left () c_total > bool 1e3';
  expect(askedBy(query)).toEqual({
    selectors: [
      {
        metric: "a:b_bucket",
        matchers: [
          { label: "x", operator: "=~", value: "$x" },
          { label: "y", operator: "=", value: "2" },
        ],
      },
      { metric: "c_total", matchers: [] },
    ],
    labels: ["le", "engine", "z"],
  });
  expect(missingIn("rate(bunting_nothing_total[5m])")).toEqual(["bunting_nothing_total"]);
  expect(missingIn("sum by (colour) (bunting_pages_free)")).toEqual(["bunting_pages_free by colour"]);
  expect(missingIn('http_requests_total{status="1xx"}')).toEqual(['http_requests_total{status="1xx"}']);
});

interface Dashboard {
  readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
  readonly templating: { readonly list: readonly { readonly type: string; readonly query: string }[] };
}

test("each query of our dashboard finds its series", () => {
  const dashboard = JSON.parse(readFileSync(join(folder, "grafana.json"), "utf8")) as Dashboard;
  const queries = dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  const variables = dashboard.templating.list
    .filter(({ type }) => type === "query")
    .map(({ query }) => /^label_values\((.*), (\w+)\)$/.exec(query)!)
    .map(([, selector, label]) => `sum by (${label}) (${selector})`);
  expect(queries.length).toBeGreaterThan(30);
  expect([...queries, ...variables].flatMap(missingIn)).toEqual([]);
});

interface Rules {
  readonly groups: readonly {
    readonly rules: readonly {
      readonly alert: string;
      readonly expr: string;
      readonly annotations: { readonly summary: string };
    }[];
  }[];
}

test("each alert finds its series, and its sentence the labels that it tells", () => {
  const { groups } = Bun.YAML.parse(readFileSync(join(folder, "alerts.yml"), "utf8")) as Rules;
  const rules = groups.flatMap((group) => group.rules);
  expect(rules.length).toBeGreaterThan(5);
  for (const { alert, expr, annotations } of rules) {
    expect([alert, missingIn(expr)]).toEqual([alert, []]);
    const { selectors, labels } = askedBy(expr);
    const told = [...annotations.summary.matchAll(/\$labels\.(\w+)/g)].map(([, label]) => label!);
    const kept =
      labels.length > 0 ? labels : [...ADDED, ...Object.keys(samples.get(selectors[0]!.metric)?.[0] ?? {})];
    for (const label of told) expect([alert, kept]).toEqual([alert, expect.arrayContaining([label])]);
  }
});

const buckets = (name: string): readonly string[] => [`${name}_bucket`, `${name}_sum`, `${name}_count`];
const ofEngine = ["model_name", "engine"];

/** Series and labels that the dashboards in vLLM's repository ask for (examples/observability), without those below. */
const askedByVllm: readonly (readonly [names: readonly string[], labels: readonly string[]])[] = [
  [
    [
      "vllm:e2e_request_latency_seconds",
      "vllm:inter_token_latency_seconds",
      "vllm:iteration_tokens_total",
      "vllm:request_decode_time_seconds",
      "vllm:request_generation_tokens",
      "vllm:request_max_num_generation_tokens",
      "vllm:request_prefill_kv_computed_tokens",
      "vllm:request_prefill_time_seconds",
      "vllm:request_prompt_tokens",
      "vllm:request_queue_time_seconds",
      "vllm:request_time_per_output_token_seconds",
      "vllm:time_to_first_token_seconds",
    ].flatMap(buckets),
    ofEngine,
  ],
  [
    [
      "vllm:cache_config_info",
      "vllm:generation_tokens_total",
      "vllm:kv_cache_usage_perc",
      "vllm:num_preemptions_total",
      "vllm:num_requests_running",
      "vllm:num_requests_waiting",
      "vllm:prefix_cache_hits_total",
      "vllm:prefix_cache_queries_total",
      "vllm:prompt_tokens_cached_total",
      "vllm:prompt_tokens_total",
      "vllm:spec_decode_num_accepted_tokens_total",
      "vllm:spec_decode_num_draft_tokens_total",
      "vllm:spec_decode_num_drafts_total",
    ],
    ofEngine,
  ],
  [
    ["vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_cached_by_source_total"],
    [...ofEngine, "source"],
  ],
  [["vllm:request_success_total"], [...ofEngine, "finished_reason"]],
  [["vllm:num_requests_waiting_by_reason"], [...ofEngine, "reason"]],
  [["vllm:engine_sleep_state"], [...ofEngine, "sleep_state"]],
  [["http_requests_total"], ["handler", "status"]],
  [["http_request_duration_seconds_sum", "http_request_duration_seconds_count"], ["handler"]],
  [
    [
      "process_cpu_seconds_total",
      "process_max_fds",
      "process_open_fds",
      "process_resident_memory_bytes",
      "process_start_time_seconds",
    ],
    [],
  ],
];

/** Values of labels by which they choose. */
const valuesAskedByVllm = [
  'vllm:request_success_total{finished_reason="error"}',
  'vllm:num_requests_waiting_by_reason{reason="capacity"}',
  'vllm:num_requests_waiting_by_reason{reason="deferred"}',
  'vllm:prompt_tokens_by_source_total{source="local_compute"}',
  'vllm:prompt_tokens_by_source_total{source="local_cache_hit"}',
  'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}',
  'vllm:engine_sleep_state{sleep_state="awake"}',
  'vllm:engine_sleep_state{sleep_state="discard_all"}',
  'http_requests_total{status="5xx"}',
  ...["0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "10.0"].map(
    (le) => `vllm:time_to_first_token_seconds_bucket{le="${le}"}`,
  ),
  ...["0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5"].map(
    (le) => `vllm:request_time_per_output_token_seconds_bucket{le="${le}"}`,
  ),
];

test("rates of what has not happened yet are 0, and not unknown", async () => {
  const idle = startTestServer();
  const busy = samples;
  samples = samplesOf(await (await fetch(`${idle.origin}/metrics`)).text());
  const queries = [
    'vllm:request_success_total{finished_reason="error"}',
    'vllm:prompt_tokens_cached_by_source_total{source="disk"}',
    "vllm:num_preemptions_total",
  ];
  const missing = queries.flatMap(missingIn);
  samples = busy;
  await idle.close();
  expect(missing).toEqual([]);
});

test("answers are told apart by engine, so that a choice of engines finds them", async () => {
  const two = startTestServer({ engines: 2, answers: ["Yes."] });
  const ask = (content: string) => post(two, "/v1/chat/completions", chatBody(content, { seed: 0 }));
  for (const response of await Promise.all(["One?", "Two?", "Three?", "Four?"].map(ask)))
    await response.text();
  await two.settled();
  const rows = await (await fetch(`${two.origin}/metrics`)).text();
  await two.close();
  const countOf = (name: string, engine: number): number => {
    const counts = rows.matchAll(new RegExp(`^${name}{.*engine="${engine}".*} (\\d+)$`, "gm"));
    return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
  };
  for (const name of ["vllm:time_to_first_token_seconds_count", "vllm:request_success_total"]) {
    for (const engine of [0, 1])
      expect([name, countOf(name, engine)]).toEqual([name, countOf("bunting_placements_total", engine)]);
    expect([name, countOf(name, 0) + countOf(name, 1)]).toEqual([name, 4]);
  }
  expect(rows).not.toContain('engine="all"');
});

test("each query of vLLM's dashboards finds its series", () => {
  const queries = askedByVllm.flatMap(([names, labels]) =>
    names.map((name) => `sum by (${labels.join(", ")}) (${name})`),
  );
  expect([...queries, ...valuesAskedByVllm].flatMap(missingIn)).toEqual([]);
});

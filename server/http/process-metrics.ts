import { collectDefaultMetrics, type Metric, Registry } from "prom-client";

/**
 * Metrics of the whole process, under the names of Prometheus' client libraries. Metrics of Node's own
 * internals are left out: on Bun they are zeros.
 */
export function processMetrics(): readonly Metric[] {
  made ??= make();
  return made;
}

let made: readonly Metric[] | null = null;

function make(): readonly Metric[] {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const names = registry.getMetricsAsArray().map(({ name }) => name);
  return names
    .filter((name) => name.startsWith("process_"))
    .map((name) => registry.getSingleMetric(name) as Metric);
}

/** Traces of a server that ends, as a collector receives them. */
import { expect, test } from "bun:test";
import { Collector } from "../support/collector.ts";
import { Program } from "./program.ts";

test("a session that is open when the server ends has its span, and that of its call within it", async () => {
  const collector = new Collector();
  const program = Program.bunting([
    ...["serve", "--device", "simulated", "--port", "0"],
    ...["--otlp-endpoint", collector.url],
  ]);
  const url = await program.url();
  const call = { prompt: "City {{city}}", output: "city", max_tokens: 2 };
  const opened = await fetch(`${url}/v1/sessions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ calls: [call] }),
  });
  const { id } = (await opened.json()) as { readonly id: string };
  expect((await fetch(`${url}/v1/sessions/${id}/variables/city`)).status).toBe(200);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  const named = (name: string) => collector.spans.find((span) => span.name.startsWith(name))!;
  const [whole, answer] = [named("program"), named("text_completion")];
  expect(whole.attributes).toMatchObject({ "bunting.program.id": id, "bunting.program.calls": 1 });
  expect(answer.parentSpanId).toBe(whole.spanId);
  expect(answer.startNs).toBeGreaterThanOrEqual(whole.startNs);
  expect(answer.endNs).toBeLessThanOrEqual(whole.endNs);
  await collector.kill();
}, 60_000);

/**
 * Random programs: the server refuses or answers each, reports every value or failure, and leaves nothing
 * behind.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../support/property.ts";
import { post, startTestServer } from "./server.ts";

const name = fc.constantFrom("a", "b", "c", "d");
const transform = fc.constantFrom(
  "strip",
  "lines",
  "number",
  { default: "x" },
  { split: " " },
  { item: 0 },
  { join: "+" },
);
const place = name.map((one) => `{{${one}}}`);
const words = fc.array(fc.oneof(place, fc.constantFrom("word ", "{{", "}} ", "<|im_end|>")), {
  maxLength: 4,
});
const drawn = fc.record({ seed: fc.integer({ min: 0, max: 2 }), max_tokens: fc.constantFrom(1, 5, 40) });

const call = fc.record({
  text: words.map((all) => all.join("")),
  output: name,
  transforms: fc.array(transform, { maxLength: 2 }),
  drawn,
  isChat: fc.boolean(),
});
type Call = typeof call extends fc.Arbitrary<infer One> ? One : never;

function callBody({
  text,
  output,
  transforms,
  drawn: sampling,
  isChat,
}: Omit<Call, "output"> & { output: string }): object {
  const prompt = isChat ? { messages: [{ role: "user", content: text }] } : { prompt: `Say ${text}` };
  return { ...prompt, outputs: { [output]: { ...sampling, transforms } } };
}

const node = fc.oneof(
  { weight: 4, arbitrary: call.map(callBody) },
  {
    weight: 1,
    arbitrary: fc.tuple(name, name, call).map(([over, output, body]) => ({
      map: over,
      item: "item",
      calls: [callBody({ ...body, output: "inner" })],
      result: "inner",
      output,
      concurrency: 2,
    })),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(name, name, call).map(([initial, output, body]) => ({
      repeat: initial,
      state: "now",
      calls: [callBody({ ...body, output: "inner" })],
      result: "inner",
      until: { contains: "e" },
      count: 2,
      output,
    })),
  },
);
const program = fc.record({
  variables: fc.dictionary(name, fc.constantFrom("", "one two", ["x", "y"]), { maxKeys: 3 }),
  calls: fc.array(node, { maxLength: 4 }),
  stream: fc.boolean(),
  explain: fc.boolean(),
});

/**
 * Repairs most defects of a random body: each name has one writer, and names without a writer are given.
 * Cycles stay, and so do some unknown names.
 */
function mended(body: typeof program extends fc.Arbitrary<infer One> ? One : never): typeof body {
  const written = new Set<string>();
  const outputOf = (one: object): string =>
    (one as { output?: string }).output ?? Object.keys((one as { outputs: object }).outputs)[0]!;
  const calls = body.calls.filter((one) => {
    const output = outputOf(one);
    return !written.has(output) && written.add(output) !== undefined;
  });
  const given = ["a", "b", "c", "d"].filter((one) => !written.has(one));
  const variables = Object.fromEntries(given.map((one) => [one, body.variables[one] ?? "x"]));
  return { ...body, calls, variables: calls.length === 3 ? body.variables : variables };
}

test("any program is refused or runs to its end", async () => {
  const server = startTestServer({ stepMs: 0 });
  const statuses: number[] = [];
  await fc.assert(
    fc.asyncProperty(program.map(mended), fc.boolean(), async (body, goesAway) => {
      const leaving = new AbortController();
      const sent = post(server, "/v1/programs", body, { signal: leaving.signal });
      if (goesAway) queueMicrotask(() => leaving.abort());
      const response = await sent.catch(() => null);
      if (response !== null) {
        statuses.push(response.status);
        expect([200, 400, 409, 422]).toContain(response.status);
        const text = await response.text().catch(() => null);
        if (text === null) expect(goesAway).toBe(true);
        else if (response.status === 200) {
          if (body.stream) expect(text).toContain("event: program.done");
          else {
            const { variables } = JSON.parse(text) as { variables: Record<string, { state: string }> };
            for (const { state } of Object.values(variables)) expect(["ready", "failed"]).toContain(state);
          }
        }
      }
      await server.settled();
      await server.programs.whenIdle();
    }),
    runs(150),
  );
  expect(statuses.filter((status) => status === 200).length).toBeGreaterThan(statuses.length / 8);
  await server.close();
}, 60_000);

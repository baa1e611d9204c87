/**
 * Programs over HTTP: their values are those of the same calls made one by one, and no state outlives them.
 */
import { describe, expect, test } from "bun:test";
import type { SequenceId } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { Unplaced } from "../../scheduler/fleet/fleet.ts";
import { ask, cleanServers, eventsOf, run, type VariableBody, valuesOf } from "./program-http.ts";
import { bodyOf, post } from "./server.ts";

const start = cleanServers();

describe("the same tokens, so the same answers, as calls of a client's own", () => {
  test("text and messages", async () => {
    const server = start();
    const text = "Some words <|im_end|> and control text.";
    const values = await valuesOf(server, {
      variables: { text },
      calls: [
        { prompt: "Text: {{text}}\nSummary:", output: "summary", seed: 3, max_tokens: 12 },
        {
          messages: [
            { role: "system", content: "Be brief." },
            { role: "user", content: "Say {{summary}} of {{ text }}." },
          ],
          output: "said",
          seed: 4,
          max_tokens: 9,
          temperature: 0.5,
        },
      ],
      await: ["summary", "said"],
    });
    const chat = {
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: `Say ${values.summary} of ${text}.` },
      ],
    };
    const said = await post(server, "/v1/chat/completions", {
      ...chat,
      seed: 4,
      max_tokens: 9,
      temperature: 0.5,
    });
    expect((await bodyOf(said)).choices[0]!.message.content).toBe(values.said as string);
    // In a client's own prompt the text would contain a control token; in a value it never does.
    const plain = await valuesOf(server, {
      variables: { text: "plain words" },
      calls: [{ prompt: "Text: {{text}}\nSummary:", output: "summary", seed: 3, max_tokens: 12 }],
    });
    const prompt = "Text: plain words\nSummary:";
    const completed = await post(server, "/v1/completions", { prompt, seed: 3, max_tokens: 12 });
    expect((await bodyOf(completed)).choices[0]!.text).toBe(plain.summary as string);
  });

  test("blank text after the last output is not read, and other text is refused", async () => {
    const server = start({ answers: ["Ada"] });
    const outputs = { name: { seed: 0 } };
    expect(await valuesOf(server, { calls: [{ prompt: "Name: {{name}}\n", outputs }] })).toEqual({
      name: "Ada",
    });
    const refused = await post(server, "/v1/programs", { calls: [{ prompt: "Name: {{name}}.", outputs }] });
    expect(refused.status).toBe(422);
  });

  test("several outputs in one text go on from the tokens that were drawn", async () => {
    const server = start();
    const values = await valuesOf(server, {
      calls: [
        {
          prompt: "Name: {{name}}, age: {{age}}.\nStory: {{story}}",
          outputs: {
            name: { max_tokens: 3, seed: 1 },
            age: { max_tokens: 2, seed: 2 },
            story: { max_tokens: 7, seed: 3 },
          },
        },
      ],
      await: ["name", "age", "story"],
    });
    const complete = async (prompt: readonly number[], maxTokens: number, seed: number) => {
      const body = { prompt, max_tokens: maxTokens, seed, return_token_ids: true };
      return (await bodyOf(await post(server, "/v1/completions", body))).choices[0]!;
    };
    const tokensOf = async (prompt: string): Promise<readonly number[]> =>
      (await bodyOf(await post(server, "/tokenize", { prompt }))).tokens;
    const first = await tokensOf("Name: ");
    const name = await complete(first, 3, 1);
    const second = [...first, ...name.token_ids, ...(await tokensOf(", age: "))];
    const age = await complete(second, 2, 2);
    const third = [...second, ...age.token_ids, ...(await tokensOf(".\nStory: "))];
    const story = await complete(third, 7, 3);
    expect(values).toEqual({ name: name.text, age: age.text, story: story.text });
  });

  test("each output of a call goes on from the one before, which is held for it and then let go", async () => {
    const server = start();
    const submitted: { readonly id: SequenceId; readonly spec: Unplaced; cached: number }[] = [];
    const { submit } = server.fleet;
    server.fleet.submit = (spec, listener) => {
      const entry = { id: -1 as SequenceId, spec, cached: 0 };
      submitted.push(entry);
      entry.id = submit.call(server.fleet, spec, {
        onStarted: (cached, at) => {
          entry.cached = cached;
          listener.onStarted(cached, at);
        },
        onToken: (token, logprobs) => listener.onToken(token, logprobs),
        onFinish: (finish, drawn, story) => listener.onFinish(finish, drawn, story),
      });
      return entry.id;
    };
    const outputs = { a: { max_tokens: 20 }, b: { max_tokens: 30, stop: ["e", "a"] }, c: { max_tokens: 4 } };
    await valuesOf(server, {
      calls: [{ prompt: "One: {{a}}, two: {{b}}, three: {{c}}", outputs, ignore_eos: true }],
      await: ["a", "b", "c"],
    });
    const [first, second, third] = submitted;
    expect(submitted.map(({ spec }) => spec.isHeld ?? false)).toEqual([true, true, false]);
    expect(submitted.map(({ spec }) => spec.continues)).toEqual([undefined, first!.id, second!.id]);
    // All drawn tokens but the last.
    expect(second!.cached).toBe(first!.spec.promptTokens.length + 20 - 1);
    expect(third!.cached).toBeGreaterThanOrEqual(second!.spec.promptTokens.length);
    await server.settled();
    // A call that ends before its last output releases its pages, too.
    await run(server, {
      calls: [
        { prompt: "{{n}} and {{m}}", outputs: { n: { max_tokens: 3, transforms: ["number"] }, m: {} } },
      ],
      await: ["m"],
    });
  });

  test("several answers in one conversation are those of a client that sends each back", async () => {
    const server = start({ answers: ["one", "two"] });
    const answers = await valuesOf(server, {
      calls: [
        {
          messages: [
            { role: "user", content: "First?" },
            { role: "assistant", content: "{{first}}" },
            { role: "user", content: "Second?" },
          ],
          outputs: { first: { seed: 0 }, second: { seed: 1 } },
        },
      ],
      await: ["first", "second"],
    });
    expect(answers).toEqual({ first: "one", second: "two" });
  });
});

describe("values on their way", () => {
  test("a list of unknown length is mapped, its results are joined in order", async () => {
    const server = start({ answers: ["1. apple\n2. pear\n3. plum", "a fruit"] });
    const values = await valuesOf(server, {
      calls: [
        ask("List fruits.", "fruits", 0, { transforms: ["lines"] }),
        {
          map: "fruits",
          item: "fruit",
          calls: [ask("What is {{fruit}}?", "meaning", 1, { transforms: [{ template: "{{value}}!" }] })],
          result: "meaning",
          output: "meanings",
          concurrency: 2,
        },
        {
          messages: [{ role: "user", content: "Merge: {{all}}" }],
          inputs: { all: { variable: "meanings", transforms: [{ join: ", " }] } },
          output: "merged",
          seed: 1,
        },
      ],
      await: ["fruits", "meanings", "merged"],
    });
    expect(values).toEqual({
      fruits: ["apple", "pear", "plum"],
      meanings: ["a fruit!", "a fruit!", "a fruit!"],
      merged: "a fruit",
    });
  });

  test("reduce, choose and repeat", async () => {
    const server = start({ answers: ["YES", "deeper", "done", "so far"] });
    const values = await valuesOf(server, {
      variables: { parts: ["a", "b"], empty: "", draft: "x" },
      calls: [
        ask("Is it?", "is", 0, { transforms: ["lower"] }),
        {
          choose: "is",
          cases: [
            { equals: "no", calls: [], result: "empty" },
            { matches: "^y", calls: [ask("Deeper.", "inner", 1)], result: "inner" },
          ],
          output: "chosen",
        },
        {
          reduce: "parts",
          item: "part",
          initial: "empty",
          accumulator: "sum",
          calls: [ask("{{sum}}+{{part}}", "more", 3)],
          result: "more",
          output: "reduced",
        },
        {
          repeat: "draft",
          state: "now",
          calls: [ask("Better: {{now}}", "better", 2)],
          result: "better",
          until: { contains: "done" },
          count: 5,
          output: "finished",
        },
      ],
    });
    expect(values).toEqual({ chosen: "deeper", reduced: "so far", finished: "done" });
  });

  test("a transform that fails, fails what it leads to with origin and path, and nothing else", async () => {
    const server = start({ answers: ["no json", "fine"] });
    const { variables } = await run(server, {
      calls: [
        { name: "extract", ...ask("JSON?", "age", 0, { transforms: [{ json: "age" }] }) },
        { name: "tell", ...ask("Tell {{age}}", "told", 1) },
        { name: "other", ...ask("Other", "unrelated", 1) },
      ],
      await: ["told", "unrelated"],
    });
    expect(variables.unrelated).toEqual({ name: "unrelated", state: "ready", value: "fine" });
    expect(variables.told).toEqual({
      name: "told",
      state: "failed",
      error: {
        code: "transform",
        message: expect.stringContaining("json: the text is not JSON"),
        origin: "extract",
        path: ["extract", "age", "tell", "told"],
      },
    });
  });
});

describe("a stream", () => {
  test("tells what happens as it happens, and ends with the usage of all calls", async () => {
    const server = start({ answers: ["one two", "end"] });
    const response = await post(server, "/v1/programs", {
      stream: true,
      calls: [
        { name: "a", ...ask("First", "first", 0) },
        { name: "b", ...ask("Then {{first}}", "last", 1, { transforms: ["strip"] }) },
      ],
    });
    const events = await eventsOf(response);
    const text = events.flatMap((event) => (event.type === "variable.delta" ? [event.text] : [])).join("");
    expect(text).toBe("one two");
    expect(events.filter(({ type }) => type !== "variable.delta")).toMatchObject([
      { type: "program.started", id: expect.stringMatching(/^prog_[0-9a-f]{32}$/) },
      { type: "call.ready", call: "a" },
      { type: "call.started", call: "a" },
      { type: "variable.ready", variable: "first", value: "one two" },
      { type: "call.ready", call: "b" },
      { type: "call.ended", call: "a" },
      { type: "call.started", call: "b" },
      { type: "variable.ready", variable: "last", value: "end" },
      { type: "call.ended", call: "b" },
      { type: "program.done", usage: { total_tokens: expect.any(Number) } },
    ]);
  });

  test("tells its id, by which a value is set that a call waits for", async () => {
    const server = start({ answers: ["said"] });
    const calls = [ask("Say {{later}}", "x", 0)];
    const { body } = await post(server, "/v1/programs", { stream: true, variables: { later: null }, calls });
    let text = "";
    for await (const bytes of body!) {
      const before = /prog_[0-9a-f]{32}/.test(text);
      text += new TextDecoder().decode(bytes);
      const id = /prog_[0-9a-f]{32}/.exec(text)?.[0];
      if (before || id === undefined) continue;
      expect(text).not.toContain("call.ready");
      const variable = `${server.origin}/v1/sessions/${id}/variables/later`;
      const headers = { "content-type": "application/json" };
      await fetch(variable, { method: "PUT", headers, body: JSON.stringify({ value: "it" }) });
    }
    expect(text).toContain('"variable":"x","value":"said"');
  });

  test("a client that goes away ends its program, unless it asked for something else", async () => {
    const server = start({ stepMs: 5 });
    const gone = async (more: object): Promise<string> => {
      const leaving = new AbortController();
      const body = { stream: true, calls: [ask("Long", "long", 1, { max_tokens: 500 })], ...more };
      const response = await post(server, "/v1/programs", body, { signal: leaving.signal });
      const reader = response.body!.getReader();
      let text = "";
      while (!text.includes("variable.delta")) text += new TextDecoder().decode((await reader.read()).value);
      leaving.abort();
      return /prog_[0-9a-f]{32}/.exec(text)![0];
    };
    await gone({});
    await server.settled();
    expect(server.programs.active).toBe(0);
    const id = await gone({
      cancel_on_disconnect: false,
      calls: [ask("Short", "long", 1, { max_tokens: 60 })],
    });
    const value = await fetch(`${server.origin}/v1/sessions/${id}/variables/long`);
    expect(((await value.json()) as VariableBody).state).toBe("ready");
    await fetch(`${server.origin}/v1/sessions/${id}`, { method: "DELETE" });
  });
});

test("an explanation's critical path adds up to the time that was waited", async () => {
  const server = start({ answers: ["one", "two", "three"] });
  const { explain } = await run(server, {
    explain: true,
    calls: [ask("A", "a", 0), ask("B", "b", 1), ask("{{a}} {{b}}", "c", 2)],
  });
  expect(explain.calls.map(({ name, objective }) => [name, objective])).toEqual([
    ["call-0", "gang"],
    ["call-1", "gang"],
    ["call-2", "latency"],
  ]);
  expect(explain.calls[0]!.gang).toBe(explain.calls[1]!.gang);
  let at = 0;
  for (const { from_ms, to_ms } of explain.critical_path) {
    expect(from_ms).toBeCloseTo(at, 6);
    at = to_ms;
  }
  expect(at).toBeCloseTo(explain.waited_ms, 6);
  for (const { ready_ms, placed_ms, started_ms, first_token_ms, ended_ms } of explain.calls) {
    const times = [ready_ms, placed_ms, started_ms, first_token_ms, ended_ms];
    expect(times.toSorted((a, b) => a - b)).toEqual(times);
  }
  expect(explain.calls.slice(0, 2).map(({ waited_for }) => waited_for)).toEqual([null, null]);
  expect(["a", "b"]).toContain(explain.calls[2]!.waited_for!);
  expect(explain.calls[2]!.ready_ms).toBeGreaterThanOrEqual(explain.calls[0]!.first_token_ms);
});

test("the beginning of a prompt is computed while its call waits for a value", async () => {
  // The device computes sixteen tokens while it reads its weights.
  const estimated = linearCost(5, 0.05, 1, undefined, [{ tokens: 16, tokenMs: 0.001 }]);
  const server = start({ programLimits: { headMsMin: 0 }, estimated });
  const head = "The beginning of this text is known from the start. ".repeat(12);
  const { explain } = await run(server, {
    explain: true,
    calls: [
      { prompt: "First:", output: "first", seed: 1, max_tokens: 40 },
      { prompt: `${head}{{first}} and then`, output: "second", seed: 2, max_tokens: 4 },
      {
        messages: [
          { role: "system", content: head },
          { role: "user", content: "Say {{first}}" },
        ],
        output: "third",
        seed: 3,
        max_tokens: 4,
      },
    ],
    await: ["second", "third"],
  });
  const [, second, third] = explain.calls.map(({ tokens }) => tokens);
  for (const tokens of [second!, third!]) {
    expect(tokens.warmed).toBeGreaterThan(100);
    expect(tokens.found).toBeGreaterThanOrEqual(tokens.warmed);
  }
});

test("a prompt that begins with another call's prompt and answer goes on from that one's pages", async () => {
  const answer = "The ships came home in the evening, and the whole town was at the harbour to see them.";
  const server = start({ answers: [answer, "They slept."] });
  const begins = "Write about ships. ".repeat(10);
  const { explain, variables } = await run(server, {
    explain: true,
    calls: [
      { prompt: begins, output: "story", seed: 0 },
      { prompt: `${begins}{{story}} Then:`, output: "end", seed: 1 },
    ],
  });
  expect(variables.end!.value).toBe("They slept.");
  const [first, second] = explain.calls.map(({ tokens }) => tokens);
  expect(first!.output).toBeGreaterThan(20);
  // Excludes the answer's last token, which was never computed, and one that may be tokenized differently at
  // the joint.
  expect(second!.found).toBeGreaterThanOrEqual(first!.prompt + first!.output - 3);
});

test("many calls that begin alike compute their beginning once", async () => {
  const server = start({ answers: ["yes"] });
  const head = "These are the rules that all of them follow. ".repeat(20);
  const { explain } = await run(server, {
    explain: true,
    calls: Array.from({ length: 8 }, (_, index) => ({
      prompt: `${head}Question ${index}: `,
      output: `a${index}`,
      seed: 0,
    })),
  });
  const computed = explain.calls.map(({ tokens }) => tokens.prompt - tokens.found).sort((a, b) => b - a);
  expect(computed[0]).toBeGreaterThan(150);
  for (const own of computed.slice(1)) expect(own).toBeLessThan(40);
});

test("calls of which only the last one counts are placed together, where there is a choice of engines", async () => {
  const calls = [
    ...["a", "b", "c"].map((name) => ({ name, ...ask(`Map ${name}`, name, 1, { max_tokens: 3 }) })),
    ask("{{a}} {{b}} {{c}}", "all", 2, { max_tokens: 3 }),
  ];
  const placed = async (reportedEngines: number): Promise<readonly number[]> => {
    const server = start({ reportedEngines });
    const together: number[] = [];
    const { submitTaskGroup } = server.fleet;
    server.fleet.submitTaskGroup = (specs, listeners) => {
      together.push(specs.length);
      return submitTaskGroup.call(server.fleet, specs, listeners);
    };
    await run(server, { calls });
    return together;
  };
  expect(await placed(2)).toEqual([3]);
  expect(await placed(1)).toEqual([]);
});

test("an output is held to a choice or a schema, in a task group too", async () => {
  const server = start({ reportedEngines: 2 });
  const schema = {
    type: "object",
    properties: { age: { type: "integer", minimum: 0, maximum: 99 } },
    required: ["age"],
    additionalProperties: false,
  };
  const { variables } = await run(server, {
    calls: [
      ask("Yes or no?", "is", 1, { guided_choice: ["yes", "no"] }),
      ask("JSON?", "age", 2, {
        response_format: { type: "json_schema", json_schema: { name: "age", schema } },
        transforms: [{ json: "age" }, "number"],
      }),
      ask("{{is}} {{age}}", "all", 3, { max_tokens: 2 }),
    ],
    await: ["is", "age", "all"],
  });
  expect(["yes", "no"]).toContain(variables.is!.value as string);
  expect(Number(variables.age!.value)).toBeWithin(0, 100);
  expect(variables.all!.state).toBe("ready");
});

test("a member that never begins does not keep its task group waiting", async () => {
  const server = start({ reportedEngines: 2 });
  const { variables } = await run(server, {
    variables: { text: "word ".repeat(3000) },
    calls: [ask("{{text}}", "a", 1), ask("Short", "b", 1, { max_tokens: 3 }), ask("{{a}} {{b}}", "all", 1)],
    await: ["all", "b"],
  });
  expect([variables.all!.state, variables.b!.state]).toEqual(["failed", "ready"]);
});

test("many long prompts at once wait for their turn to be made into tokens", async () => {
  const server = start();
  const text = "0123456789 ".repeat(1000); // too long for the model, and to tokenize in passing
  const calls = Array.from({ length: 100 }, (_, index) => ask("{{text}}", `v${index}`, 1));
  const { variables } = await run(server, { variables: { text }, calls });
  const codes = new Set(Object.values(variables).map(({ error }) => error!.code));
  expect([...codes]).toEqual(["context_length_exceeded"]);
});

describe("engines and the server's end", () => {
  test("a call whose row fails, fails its value and no other", async () => {
    const server = start({
      fault: (step) => {
        const sampled = step.chunks.flatMap(({ sequence, samples }) =>
          samples.map((row) =>
            row.wants === undefined && row.sampling.seed[0] === 1
              ? { kind: "failed" as const, sequence, reason: "logits are not finite" }
              : { kind: "token" as const, sequence, token: 300, logprobs: null },
          ),
        );
        return { kind: "done", sampled, deviceMs: 1 };
      },
    });
    const { variables } = await run(server, {
      calls: [ask("?", "bad", 1, { max_tokens: 2 }), ask("?", "good", 2, { max_tokens: 2 })],
    });
    expect([variables.bad!.error!.code, variables.good!.state]).toEqual(["engine_error", "ready"]);
  });

  test("a crowd of calls begins in turn with what else the thread does", async () => {
    const server = start();
    const calls = Array.from({ length: 32 }, (_, index) =>
      ask(`${index} ${"word ".repeat(1000)}`, `a${index}`, index, { max_tokens: 1 }),
    );
    const answered = run(server, { calls });
    while (server.generator.active === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(server.generator.active).toBeLessThan(calls.length);
    await answered;
  });

  test("what is too long for the model fails its call with both numbers", async () => {
    const server = start();
    const { variables } = await run(server, {
      variables: { text: "word ".repeat(3000) },
      calls: [{ name: "read", ...ask("{{text}}", "answer", 1) }],
    });
    expect(variables.answer!.error).toMatchObject({ code: "context_length_exceeded", origin: "read" });
  });

  test("a server that ends tells the clients that wait, and lets go of everything", async () => {
    const server = start({ stepMs: 5 });
    const calls = [ask("Long", "a", 1, { max_tokens: 1000 })];
    const waiting = await post(server, "/v1/programs", { calls, stream: true });
    expect(await server.lifecycle.drain(1)).toBe(1);
    expect(await waiting.text()).toMatch(/event: error\ndata: .*"code":"draining"/);
  });
});

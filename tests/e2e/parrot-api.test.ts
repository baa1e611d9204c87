/** Parrot's own wire formats: requests as its authors' client writes them, and the bodies of the paper. */
import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { post, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ speaksParrot: true });
});
afterEach(async () => {
  await server.settled();
  expect(server.programs.active).toBe(0);
});
afterAll(() => server.close());

interface Submitted {
  readonly request_id: number;
  readonly param_info: readonly {
    readonly parameter_name: string;
    readonly is_output: boolean;
    readonly var_id: string;
  }[];
}

async function send<Body>(path: string, body: object): Promise<Body> {
  const response = await post(server, path, body);
  const answer = await response.json();
  expect([response.status, answer]).toEqual([200, answer]);
  return answer as Body;
}

/** Sends a GET with a JSON body, as the authors' client does. */
function getWithBody(
  path: string,
  body: object,
): Promise<{ readonly status: number; readonly body: unknown }> {
  const { port, host } = new URL(server.origin);
  const json = JSON.stringify(body);
  const head = `GET ${path} HTTP/1.1\r\nhost: ${host}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n`;
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), "127.0.0.1", () => socket.write(head + json));
    let text = "";
    socket.on("data", (bytes) => {
      text += bytes.toString();
    });
    socket.on("error", reject);
    socket.on("close", () => {
      const start = text.indexOf("{");
      resolve({
        status: Number(text.slice(9, 12)),
        body: JSON.parse(text.slice(start, text.lastIndexOf("}") + 1)),
      });
    });
  });
}

async function session(): Promise<number> {
  const { session_id } = await send<{ session_id: number }>("/v1/session", { api_key: "1" });
  return session_id;
}

async function end(id: number): Promise<void> {
  const init = { method: "DELETE", body: JSON.stringify({ session_auth: "1" }) };
  expect((await fetch(`${server.origin}/v1/session/${id}`, init)).status).toBe(200);
}

/** Metadata that the authors' client sends for every function. */
const metadata = {
  models: [],
  model_type: "token_id",
  remove_pure_fill: true,
  cache_prefix: true,
  fuse_fill: false,
};
const sampling = {
  temperature: 0,
  top_p: 0.95,
  max_gen_length: 8,
  ignore_tokenizer_eos: true,
  stop_token_ids: [],
  stop_str: null,
  presence_penalty: 0,
  frequency_penalty: 0,
  n: 1,
  best_of: 1,
  logit_bias: null,
  repetition_penalty: 0,
  length_penalty: 0,
};

async function completed(prompt: string): Promise<string> {
  const body = { prompt, temperature: 0, top_p: 0.95, max_tokens: 8, ignore_eos: true };
  const answer = await send<{ choices: { text: string }[] }>("/v1/completions", body);
  return answer.choices[0]!.text;
}

test("their client's chain of summaries: each call reads what the one before writes", async () => {
  const id = await session();
  const submit = async (text: object, before: object): Promise<string> => {
    const { param_info } = await send<Submitted>("/v1/semantic_call", {
      session_id: id,
      ...metadata,
      func_name: "summarise",
      template: "Text: {{text}}\nBefore: {{before}}\nSummary: {{summary}} and what nobody reads",
      parameters: [
        { name: "text", is_output: false, ...text },
        { name: "before", is_output: false, ...before },
        { name: "summary", is_output: true, sampling_config: sampling },
      ],
    });
    expect(param_info.map(({ parameter_name, is_output }) => [parameter_name, is_output])).toEqual([
      ["text", false],
      ["before", false],
      ["summary", true],
    ]);
    return param_info[2]!.var_id;
  };
  const first = await submit({ value: "one" }, { value: "nothing" });
  const second = await submit({ value: "two" }, { var_id: first });
  const asked = { session_id: id, session_auth: "1", criteria: "latency" };
  const one = await completed("Text: one\nBefore: nothing\nSummary: ");
  const two = await completed(`Text: two\nBefore: ${one}\nSummary: `);
  expect(await getWithBody(`/v1/semantic_var/${second}`, asked)).toEqual({
    status: 200,
    body: { content: two },
  });
  expect(await getWithBody(`/v1/semantic_var/${first}`, asked)).toEqual({
    status: 200,
    body: { content: one },
  });
  await end(id);
});

test("variables are registered, set and read; map and reduce over them", async () => {
  const id = await session();
  const register = async (name: string): Promise<string> =>
    (
      await send<{ var_id: string }>("/v1/semantic_var", {
        session_id: id,
        session_auth: "1",
        var_name: name,
      })
    ).var_id;
  const inputs = await Promise.all(["a", "b"].map(register));
  const outputs = await Promise.all(["x", "y", "all"].map(register));
  const call = (template: string, ins: Record<string, string>, out: string): Promise<Submitted> =>
    send<Submitted>("/v1/semantic_call", {
      session_id: id,
      ...metadata,
      template,
      parameters: [
        ...Object.entries(ins).map(([name, var_id]) => ({ name, is_output: false, var_id })),
        { name: "out", is_output: true, var_id: out, sampling_config: sampling },
      ],
      output_criteria: "throughput",
    });
  await call("Map {{in}}: {{out}}", { in: inputs[0]! }, outputs[0]!);
  await call("Map {{in}}: {{out}}", { in: inputs[1]! }, outputs[1]!);
  await call("Reduce {{x}} {{y}}: {{out}}", { x: outputs[0]!, y: outputs[1]! }, outputs[2]!);
  for (const [index, content] of ["A", "B"].entries()) {
    await send(`/v1/semantic_var/${inputs[index]}`, { session_id: id, session_auth: "1", content });
  }
  const [x, y] = [await completed("Map A: "), await completed("Map B: ")];
  const all = await completed(`Reduce ${x} ${y}: `);
  expect(await getWithBody(`/v1/semantic_var/${outputs[2]}`, {})).toEqual({
    status: 200,
    body: { content: all },
  });
  await end(id);
});

test("the paper's bodies", async () => {
  const id = await session();
  await send("/v1/submit", {
    prompt: "Write {{task}}: {{code}}",
    placeholders: [
      { name: "task", in_out: false, semantic_var_id: "a-task", transforms: "" },
      {
        name: "code",
        in_out: true,
        semantic_var_id: "the-code",
        transforms: "strip",
        sampling_config: sampling,
      },
    ],
    session_id: String(id),
  });
  const placeholders = [
    { name: "code", in_out: false, semantic_var_id: "the-code", transforms: '[{"template": "<{{value}}>"}]' },
    { name: "test", in_out: true, semantic_var_id: "the-test", sampling_config: sampling },
  ];
  await send("/v1/submit", { prompt: "Test {{code}}: {{test}}", placeholders, session_id: String(id) });
  await send("/v1/set", { semantic_var_id: "a-task", content: "a game", session_id: String(id) });
  const code = (await completed("Write a game: ")).trim();
  const get = { semantic_var_id: "the-test", criteria: "LATENCY", session_id: String(id) };
  expect(await send<object>("/v1/get", get)).toEqual({ content: await completed(`Test <${code}>: `) });
  await end(id);
});

test("what is wrong is status 500 with error and traceback", async () => {
  const id = await session();
  const refused = async (path: string, body: object): Promise<string> => {
    const response = await post(server, path, body);
    const answer = (await response.json()) as { readonly error: string; readonly traceback: string };
    expect([response.status, answer.traceback]).toEqual([500, ""]);
    return answer.error;
  };
  const template = "{{x}}: {{y}}";
  expect(await refused("/v1/semantic_call", { session_id: 99, template })).toBe("there is no session 99");
  expect(await refused("/v1/semantic_call", { session_id: id, template })).toBe(
    "the placeholder x stands for nothing",
  );
  expect(await refused("/v1/py_native_call", { session_id: id, func_code: "" })).toContain(
    "runs no code of its clients",
  );
  const submitting = (transforms: unknown): Promise<string> => {
    const placeholders = [{ name: "y", in_out: true, transforms }];
    return refused("/v1/submit", { session_id: id, prompt: "{{y}}", placeholders });
  };
  const many = Array.from({ length: 17 }, () => "strip");
  const tooMany = "placeholders[0].transforms may hold 16 items at most, but holds 17";
  expect(await submitting(many)).toBe(tooMany);
  expect(await submitting(JSON.stringify(many))).toBe(tooMany);
  expect(await submitting(["strip", "none"])).toStartWith("placeholders[0].transforms[1] must be one of ");
  const parameters = [
    { name: "x", is_output: false, value: "word ".repeat(3000) },
    { name: "y", is_output: true, sampling_config: sampling },
  ];
  const { param_info } = await send<Submitted>("/v1/semantic_call", { session_id: id, template, parameters });
  expect(await getWithBody(`/v1/semantic_var/${param_info[1]!.var_id}`, {})).toEqual({
    status: 500,
    body: { error: expect.stringContaining("maximum context length"), traceback: "" },
  });
  await end(id);
});

test("without --parrot-api there are no such routes", async () => {
  const plain = startTestServer();
  expect((await post(plain, "/v1/session", { api_key: "1" })).status).toBe(404);
  await plain.close();
});

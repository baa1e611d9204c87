/** Fill-in-the-middle: `suffix` of OpenAI and Ollama, and /infill of llama-server. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tokenizerWith } from "../support/demo-variants.ts";
import { bodyOf, post, startTestServer, type TestServer } from "./server.ts";

const marks = [
  "<|fim_prefix|>",
  "<|fim_suffix|>",
  "<|fim_middle|>",
  "<|fim_pad|>",
  "<|repo_name|>",
  "<|file_sep|>",
];
const filled = "a + b";

let folder = "";
let server: TestServer;
let plain: TestServer;
/** Last prompt that the model read. */
let read = "";
beforeAll(() => {
  folder = tokenizerWith(mkdtempSync(join(tmpdir(), "bunting-fill-")), marks);
  const says = (prompt: string) => {
    read = prompt;
    return [`${filled}<|fim_pad|> and more`];
  };
  server = startTestServer({ textFolder: folder, answers: says, spec: { vocabSize: 4112, contextMax: 256 } });
  plain = startTestServer();
});
afterEach(() => server.settled());
afterAll(async () => {
  await server.close();
  await plain.close();
  rmSync(folder, { recursive: true });
});

interface Told {
  readonly text: string;
  readonly end: string;
}

const before = "def add(a, b):\n    return ";
const behind = "\n\nprint(add(1, 2))<|im_end|>";
const prompt = `<|fim_prefix|>${before}<|fim_suffix|>${behind}<|fim_middle|>`;

const routes: Readonly<Record<string, { readonly body: object; readonly told: (body: never) => Told }>> = {
  "/v1/completions": {
    body: { prompt: before, suffix: behind },
    told: ({ choices: [choice] }: { choices: { text: string; finish_reason: string }[] }) => ({
      text: choice!.text,
      end: choice!.finish_reason,
    }),
  },
  "/api/generate": {
    body: { model: "demo", prompt: before, suffix: behind, stream: false },
    told: ({ response, done_reason }: { response: string; done_reason: string }) => ({
      text: response,
      end: done_reason,
    }),
  },
  "/infill": {
    body: { input_prefix: "def add(a, b):\n", prompt: "    return ", input_suffix: behind },
    told: ({ content, stop_type }: { content: string; stop_type: string }) => ({
      text: content,
      end: stop_type === "eos" ? "stop" : stop_type,
    }),
  },
};

describe.each(Object.entries(routes))("%s", (path, { body, told }) => {
  test("fills in between, by the model's own tokens, which end the answer too", async () => {
    const response = await post(server, path, body);
    expect(response.status).toBe(200);
    expect(response.headers.get("x-bunting-ignored")).toBeNull();
    expect(told((await response.json()) as never)).toEqual({ text: filled, end: "stop" });
    expect(read).toBe(prompt);
  });

  test("refuses it for a model without such tokens, with a sentence", async () => {
    const refusal = await post(plain, path, body);
    const { error } = (await refusal.json()) as { error: string | { message: string } };
    expect(refusal.status).toBe(400);
    const sentence = typeof error === "string" ? error : error.message;
    expect(sentence).toMatch(/suffix: this model's vocabulary has no tokens for filling in the middle/);
  });

  test("refuses texts that leave no room", async () => {
    const long = "word ".repeat(300);
    const name = path === "/infill" ? "input_suffix" : "suffix";
    const refusal = await post(server, path, { ...body, [name]: long });
    expect([refusal.status, await refusal.text()]).toEqual([
      400,
      expect.stringContaining("maximum context length"),
    ]);
  });
});

test("Ollama's clients are told who can fill in", async () => {
  const canInsert = async (one: TestServer): Promise<boolean> => {
    const shown = await post(one, "/api/show", { model: "demo" });
    return ((await shown.json()) as { capabilities: string[] }).capabilities.includes("insert");
  };
  expect([await canInsert(server), await canInsert(plain)]).toEqual([true, false]);
});

test("control text in a program's source is text", async () => {
  const asked = { ...routes["/v1/completions"]!.body, return_token_ids: true };
  const { choices } = await bodyOf(await post(server, "/v1/completions", asked));
  const imEnd = 2;
  expect(choices[0]!.prompt_token_ids).not.toContain(imEnd);
  const { choices: alone } = await bodyOf(
    await post(server, "/v1/completions", { prompt: "<|im_end|>", return_token_ids: true, max_tokens: 1 }),
  );
  expect(alone[0]!.prompt_token_ids).toEqual([imEnd]);
});

test("prompts of a list are filled one by one, and a bound still holds", async () => {
  const asked = { prompt: ["One", "Two"], suffix: "three", max_tokens: 1 };
  const { choices } = await bodyOf(await post(server, "/v1/completions", asked));
  expect(choices.map(({ finish_reason }) => finish_reason)).toEqual(["length", "length"]);
  expect(read).toBe("<|fim_prefix|>Two<|fim_suffix|>three<|fim_middle|>");
});

test("suffix is refused where the prompt is told back, and in chats", async () => {
  const cases: [string, object, string][] = [
    ["/v1/completions", { prompt: "One", suffix: "two", echo: true }, "echo"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }], suffix: "two" }, "suffix"],
    ["/v1/responses", { input: "Hi", suffix: "two" }, "suffix"],
    ["/completion", { prompt: "Hi", suffix: "two" }, "suffix"],
  ];
  for (const [path, body, param] of cases) {
    const refusal = await post(server, path, body);
    expect([path, refusal.status, (await bodyOf(refusal)).error.param]).toEqual([path, 400, param]);
  }
});

describe("/infill with texts of other files", () => {
  const around = { input_prefix: "One", input_suffix: "three", n_predict: 20 };

  test("puts them before, each behind its name", async () => {
    const input_extra = [{ filename: "a.py", text: "x = 1\n" }, { text: "y = 2\n" }];
    const response = await post(server, "/infill", { ...around, input_extra });
    expect(response.headers.get("x-bunting-ignored")).toBeNull();
    await response.text();
    const files = "<|repo_name|>myproject\n<|file_sep|>a.py\nx = 1\n<|file_sep|>tmp\ny = 2\n";
    expect(read).toBe(`${files}<|fim_prefix|>One<|fim_suffix|>three<|fim_middle|>`);
  });

  test("leaves out the first where there is no room, and says so", async () => {
    const input_extra = [{ text: "word ".repeat(300) }, { text: "y = 2\n" }];
    const response = await post(server, "/infill", { ...around, input_extra, unheard_of: 1 });
    expect(response.headers.get("x-bunting-ignored")).toBe("unheard_of, input_extra");
    await response.text();
    expect(read).toStartWith("<|repo_name|>myproject\n<|file_sep|>tmp\ny = 2\n<|fim_prefix|>");
  });

  test("refuses what is no text", async () => {
    const refusal = await post(server, "/infill", { ...around, input_extra: ["x"] });
    expect([refusal.status, (await bodyOf(refusal)).error.param]).toEqual([400, "input_extra[0]"]);
  });
});

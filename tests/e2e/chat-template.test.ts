/** Chat templates of a model's files and of the command line, in a server of its own. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-chat-template-"));
afterAll(() => rmSync(scratch, { recursive: true }));
const demo = join(import.meta.dir, "../../models/demo");
const own = ["tokenizer_config.json", "special_tokens_map.json"];

/** The demo model with these files in place of its tokenizer's configuration. */
function modelWith(name: string, files: Readonly<Record<string, string>>): string {
  const folder = join(scratch, name);
  mkdirSync(join(folder, "additional_chat_templates"), { recursive: true });
  for (const file of readdirSync(demo))
    if (!own.includes(file)) symlinkSync(join(demo, file), join(folder, file));
  for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
  return folder;
}

const model = modelWith("model", {
  "chat_template.json": JSON.stringify({
    chat_template:
      "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}{{ tone }}{{ eos_token }}",
  }),
  "additional_chat_templates/tool_use.jinja": "tools:{{ messages[-1].content }}",
  "additional_chat_templates/rag.jinja": "rag:{{ messages[-1].content }}",
  "special_tokens_map.json": JSON.stringify({ bos_token: "<|start|>", eos_token: { content: "<|end|>" } }),
});

const simulated = ["serve", "--device", "simulated", "--port", "0"];

/** Runs a server and asks it for the prompt of a chat with each body. */
async function promptsOf(args: readonly string[], ...bodies: readonly object[]) {
  const program = Program.bunting([...simulated, ...args]);
  try {
    const url = (await program.outputMatch(/at (http:\S+)\/v1/))[1]!;
    const prompts = bodies.map(async (more) => {
      const body = JSON.stringify({ messages: [{ role: "user", content: "Hi" }], ...more });
      const headers = { "content-type": "application/json" };
      const response = await fetch(`${url}/apply-template`, { method: "POST", body, headers });
      const answer = (await response.json()) as { prompt?: string; error?: { message: string } };
      return answer.prompt ?? answer.error!.message;
    });
    return { prompts: await Promise.all(prompts), output: program.output };
  } finally {
    program.signal("SIGKILL");
  }
}

const tools = [{ type: "function", function: { name: "f", parameters: {} } }];

describe("the prompt of a chat", () => {
  test("is that of the model's files", async () => {
    const { prompts } = await promptsOf([model], {}, { tools });
    expect(prompts).toEqual(["<|start|>[Hi]<|end|>", "tools:Hi"]);
  });

  test("is that of another template by its name, or of a file", async () => {
    expect((await promptsOf([model, "--chat-template", "rag"], { tools })).prompts).toEqual(["rag:Hi"]);
    const file = join(scratch, "own.jinja");
    writeFileSync(file, "own:{% for part in messages[-1].content %}{{ part.text }}{% endfor %}");
    const content = ["First part. ", "Second part."].map((text) => ({ type: "text", text }));
    const { prompts } = await promptsOf(
      [model, "--chat-template", file],
      {},
      { messages: [{ role: "user", content }] },
    );
    expect(prompts).toEqual(["own:Hi", "own:First part. Second part."]);
  });

  test("has the server's arguments where a request names no others", async () => {
    const args = [model, "--chat-template-kwargs", '{"tone": 1.0, "unheard": 2}'];
    const { prompts, output } = await promptsOf(args, {}, { chat_template_kwargs: { tone: "b" } });
    expect(prompts).toEqual(["<|start|>[Hi]1.0<|end|>", "<|start|>[Hi]b<|end|>"]);
    expect(output).toContain("The chat template does not know the argument unheard.");
  });

  test("is refused, and said at the start, if the template writes nothing of it", async () => {
    const mute = join(scratch, "mute.jinja");
    writeFileSync(mute, "{{ bos_token }}{{ messages[-1].words }}");
    const { prompts, output } = await promptsOf([model, "--chat-template", mute], {});
    expect(prompts[0]).toContain("the chat template writes nothing of a user's message");
    expect(output).toContain("The chat template writes nothing of a user's message.");
  });
});

test("a folder without a tokenizer says so before it shows a plan", async () => {
  const folder = modelWith("bare", {});
  rmSync(join(folder, "tokenizer.json"));
  const program = Program.bunting(["serve", folder, "--port", "0", "--device", "cpu"]);
  expect(await program.exitCode()).toBe(1);
  expect(program.errors).toMatch(/tokenizer\.json: no such file$/m);
  expect(program.output).toBe("");
});

test.each([
  [
    ["--chat-template", "none"],
    /^--chat-template: none is no file, and no name of a chat template; the model has default, rag, tool_use\.$/,
  ],
  [["--chat-template-kwargs", "[1]"], /It is not a JSON object/],
  [["--chat-template-kwargs", '{"messages": []}'], /^--chat-template-kwargs: .*may not set "messages"\.$/],
])("%j is refused in one sentence", async (args, sentence) => {
  const program = Program.bunting([...simulated, model, ...args]);
  expect(await program.exitCode()).toBe(1);
  expect(program.errors.trim()).toMatch(sentence);
});

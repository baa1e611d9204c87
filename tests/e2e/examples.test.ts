/** Every program in examples/ runs against the embedded model and prints the expected output. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import OpenAI from "openai";
import { Program } from "./program.ts";

const folder = resolve(import.meta.dir, "../../examples");
const programs = join(folder, "programs");
let server: Program;
let url: string;

beforeAll(async () => {
  server = Program.bunting(["serve", "--device", "cpu", "--port", "0", "--programs", programs]);
  url = await server.url();
}, 60_000);
afterAll(async () => {
  server.signal("SIGTERM");
  expect(await server.exitCode()).toBe(0);
});

const summary =
  "Sales rose by 12 percent. Three people joined the team. Costs fell by 3 percent. The office moved to Oslo. Costs fell by 5 percent.\n";
const found = "The secret code is 739204.\nThe name of the ship is Varilon.\n";

const expected: Readonly<Record<string, string | RegExp>> = {
  "chain-summary.ts": summary,
  "map-reduce-summary.ts": summary,
  "chat-search.ts": found.repeat(4),
  "multi-agent.ts": "mushrooms, concerts\n",
  "extraction.ts": `apple: fruit with red or yellow or green skin and sweet to tart crisp whitish flesh
pear: sweet juicy gritty-textured fruit available in many varieties
plum: any of numerous varieties of small to medium-sized round or oval fruit having a smooth skin and a single pit
Nora will be 35.
`,
  "chain.py": "items: waves, ships, fish, sand\npick: ships\n",
  "chat.sh": /"content":"47 \+ 38 = 70 \+ 15 = 85"[\s\S]*data: \[DONE\]/,
  "openai-sdk.ts": /^47 \+ 38 = 70 \+ 15 = 85\n\{\s+name: "Nora",\s+age: 34,\s+\}\n$/,
  "openai_sdk.py": "47 + 38 = 70 + 15 = 85\n{'name': 'Nora', 'age': 34}\n",
  "anthropic-sdk.ts": 'get_weather({"city":"Oslo"})\nIt is 7 degrees and cloudy in Oslo.\n',
  "job.sh":
    /"custom_id":"brave".*"status_code":200[\s\S]*"custom_id":"lighthouse"[\s\S]*"custom_id":"kettle"/,
  "chain.sh": /"variable":"joined","value":"apple, pear, plum"[\s\S]*event: program\.done/,
};

const python = process.env.PYTHON ?? "python3";
const commands: Readonly<Record<string, string>> = { ts: process.execPath, py: python, sh: "sh" };

/** True if the example needs a Python package that is not there. */
function lacksPackage(name: string): boolean {
  if (name !== "openai_sdk.py") return false;
  return !Bun.spawnSync([python, "-c", "import openai"], { stderr: "ignore" }).success;
}

test.each(Object.entries(expected))(
  "%s",
  async (name, output) => {
    const command = commands[name.split(".").at(-1)!]!;
    if (Bun.which(command) === null || lacksPackage(name)) {
      console.log(
        `skipped: ${name} needs ${command}${name.endsWith("sdk.py") ? " with the package openai" : ""}`,
      );
      return;
    }
    const environment = { ...(process.env as Record<string, string>), BUNTING_URL: url };
    const example = new Program([command, join(folder, name)], { environment });
    expect([await example.exitCode(), example.errors]).toEqual([0, ""]);
    if (typeof output === "string") expect(example.output).toBe(output);
    else expect(example.output).toMatch(output);
  },
  60_000,
);

test("programs/longest.yaml, as a model", async () => {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
  const messages = [{ role: "user" as const, content: "the forest" }];
  const answer = await client.chat.completions.create({ model: "longest", messages });
  expect(answer.choices[0]!.message.content).toBe("mushrooms");
});

test("no example is left out", () => {
  const others = ["README.md", "reports.ts", "programs"];
  const names = readdirSync(folder).filter((name) => !others.includes(name));
  expect(names.sort()).toEqual(Object.keys(expected).sort());
});

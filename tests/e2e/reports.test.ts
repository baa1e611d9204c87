/** HTML reports of `bench` and `simulate`: one file, whose policy lets its own scripts draw, and nothing else. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { htmlOf } from "../../server/cli/report/html.ts";
import { Browser, chromium, type Page } from "./browser.ts";
import { Program } from "./program.ts";
import { startTestServer, type TestServer } from "./server.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-reports-"));
const file = (name: string): string => join(scratch, name);
let server: TestServer;
beforeAll(async () => {
  server = await startTestServer();
});
afterAll(async () => {
  await server.close();
  rmSync(scratch, { recursive: true });
});

const bench = async (...options: readonly string[]): Promise<string> => {
  const program = Program.bunting(["bench", "--url", server.origin, ...options]);
  expect([await program.exitCode(), program.errors]).toEqual([0, expect.any(String)]);
  return program.output;
};

/** Plots in the file, after a check that nothing in it points elsewhere. */
function plotsIn(path: string): readonly { readonly title: string; readonly x: readonly number[] }[] {
  const html = readFileSync(path, "utf8");
  expect(html).toContain("default-src 'none'");
  expect(html).not.toMatch(/\s(src|href)=/);
  return JSON.parse(/id="plots">(.*?)<\/script>/.exec(html)![1]!);
}

test("bench finds the rate up to which answers are good, and draws latency by rate", async () => {
  const [json, html] = [file("sweep.json"), file("sweep.html")];
  // A busy machine keeps this target, too.
  const target = ["--good-ttft-ms", "60000", "--good-tbt-ms", "60000"];
  const load = ["--sweep", "--seconds", "10", "--output-tokens", "4", "--prompt-tokens", "16", ...target];
  const output = await bench(...load, "--json", json, "--html", html);
  expect(output).toMatch(/Up to [\d.]+ requests per second, 90 % of the answers keep the target/);
  const { knee, points } = JSON.parse(readFileSync(json, "utf8"));
  const rates = points.map(
    (point: { plan: { arrivals: { perSecond: number } } }) => point.plan.arrivals.perSecond,
  );
  expect(rates).toContain(knee);
  for (const point of points) expect(point.goodput.share).toBeGreaterThanOrEqual(0);
  const plots = plotsIn(html);
  expect(plots.map(({ title }) => title)).toEqual([
    "Time to first token",
    "Time between tokens",
    "End to end",
    "Goodput",
  ]);
  expect(plots[0]!.x).toEqual(rates.toSorted((a: number, b: number) => a - b));
}, 60_000);

test("conversations go on with the server's own answers, and lengths as ShareGPT's differ", async () => {
  const talk = file("talk.json");
  const turns = [
    "--dataset",
    "conversations",
    "--turns",
    "3",
    "--output-tokens",
    "8",
    "--prompt-tokens",
    "32",
  ];
  await bench("--requests", "6", "--concurrency", "1", ...turns, "--json", talk);
  const told = JSON.parse(readFileSync(talk, "utf8"));
  expect(told).toMatchObject({ completed: 6, failed: 0, unanswered: 0 });
  // Prompts of about 32, 72 and 112 tokens, of which all but the last message are cached.
  expect(told.promptTokens).toBeGreaterThan(6 * 60);
  expect(told.cachedShare).toBeGreaterThan(0.3);
  const drawn = file("sharegpt.html");
  expect(await bench("--requests", "6", "--dataset", "sharegpt", "--html", drawn)).toContain(
    "lengths as ShareGPT's",
  );
  expect(plotsIn(drawn).map(({ title }) => title)).toContain("Time between tokens");
}, 60_000);

test.each([
  [["--dataset", "none"], 'There is no dataset "none"; there are fixed, sharegpt, conversations.'],
  [["--machine", "--html", file("x.html")], "--html is for loads; --machine writes --json alone."],
])("bench %j is refused", async (options, sentence) => {
  const program = Program.bunting(["bench", "--url", server.origin, ...options]);
  expect([await program.exitCode(), program.errors.trim()]).toEqual([1, sentence]);
});

test("simulate draws a line for each policy", async () => {
  const html = file("simulation.html");
  const options = ["--workload", "tools", "--requests", "20", "--devices", "1xa100", "--html", html];
  const policies = ["--policy", "ours", "--policy", "sglang"];
  const program = Program.bunting(["simulate", ...options, ...policies], { cwd: scratch });
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  const [first] = plotsIn(html) as unknown as { lines: { label: string }[] }[];
  expect(first!.lines.map(({ label }) => label)).toEqual(["ours", "sglang"]);
}, 60_000);

describe.skipIf(chromium === null)("in a browser", () => {
  let browser: Browser;
  let page: Page;
  const problems: unknown[] = [];
  beforeAll(async () => {
    const report = {
      title: "</script><script>alert(1)</script>",
      notes: ["a < b"],
      tables: [{ head: ["name", "count"], rows: [["<b>", 1]] as const }],
      plots: [
        {
          title: "First & last",
          xLabel: "</script>",
          yLabel: "milliseconds",
          x: [1, 2, 3],
          lines: [{ label: "a", values: [1, null, 3] }],
          mark: 2,
        },
      ],
    };
    await Bun.write(file("hostile.html"), htmlOf(report));
    browser = await Browser.start(chromium!);
    page = await browser.open("about:blank");
    page.on("Log.entryAdded", (entry) => problems.push(entry));
    page.on("Runtime.exceptionThrown", (thrown) => problems.push(thrown));
    await page.call("Log.enable");
    await page.call("Runtime.enable");
    await page.go(`file://${file("hostile.html")}`);
  });
  afterAll(() => browser.close());

  test("its policy lets it draw, and texts stay texts", async () => {
    expect(await page.evaluate(`document.querySelectorAll("canvas").length`)).toBe(1);
    const drawn = `(() => {
      const canvas = document.querySelector("canvas");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return data.some((value) => value !== 0);
    })()`;
    expect(await page.evaluate(drawn)).toBe(true);
    expect(await page.evaluate(`document.querySelector("h1").textContent`)).toContain("<script>");
    expect(await page.evaluate(`document.querySelector("td").textContent`)).toBe("<b>");
    expect(problems).toEqual([]);
  });

  test("its policy lets no other script run", async () => {
    const injected = `(() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      return window.ran === undefined;
    })()`;
    expect(await page.evaluate(injected)).toBe(true);
  });
});

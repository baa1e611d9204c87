/** `bunting top`: in a terminal, in a pipe, and without a server. */
import { afterEach, expect, test } from "bun:test";
import { Program, TerminalProgram } from "./program.ts";
import { chatBody, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";

const TAKEN = "\x1b[?1049h\x1b[?25l";
const GIVEN_BACK = "\x1b[?25h\x1b[?1049l";

let server: TestServer;
let leaving: AbortController;
/** Answer of the first request, which is cut when nobody holds it. */
let answer: { cancel(): Promise<void> };
afterEach(async () => {
  leaving.abort();
  await answer.cancel().catch(() => {});
  await server.settled();
  await server.close();
});

/** Starts a server on which one request runs for some seconds and another waits for it to end. */
async function startBusy(options: TestServerOptions = {}): Promise<void> {
  leaving = new AbortController();
  server = startTestServer({ stepMs: 30, spec: { stepChunksMax: 1 }, ...options });
  const body = chatBody("Rome?", { stream: true, max_tokens: 5000, ignore_eos: true });
  const init = (id: string) => ({
    signal: leaving.signal,
    headers: { "x-request-id": id, authorization: "Bearer blue" },
  });
  const response = await post(server, "/v1/chat/completions", body, init("the-first"));
  const reader = response.body!.getReader();
  await reader.read();
  answer = reader;
  void post(server, "/v1/chat/completions", body, init("the-second")).catch(() => {});
}

test("the screen shows what runs and what waits, and is given back by q", async () => {
  await startBusy();
  const program = new TerminalProgram(["top", "--url", server.origin]);
  await program.outputMatch(/q quits/);
  await program.outputMatch(/chats +none +1 /);
  await program.outputMatch(/(decode|decode_\w+|slower) +the-first/);
  await program.outputMatch(/slots +the-second/);
  program.resize(130, 40);
  await program.outputMatch(/others to end: as many sequences ran as may/);
  program.press("q");
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toStartWith(TAKEN);
  expect(program.output).toEndWith(GIVEN_BACK);
});

test("Ctrl-C gives the screen back too", async () => {
  await startBusy();
  const program = new TerminalProgram(["top", "--url", server.origin]);
  await program.outputMatch(/the-first/);
  program.press("\x03");
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toStartWith(TAKEN);
  expect(program.output).toEndWith(GIVEN_BACK);
});

/** Starts `bunting top` on another server, which then ends. `port`: where it was. */
async function watchLostServer(): Promise<{ readonly program: TerminalProgram; readonly port: number }> {
  await startBusy();
  const lost = startTestServer({ keys: { adminKeys: ["red"] } });
  const program = new TerminalProgram(["top", "--url", lost.origin, "--api-key", "red"]);
  await program.outputMatch(/No request runs/);
  await lost.close();
  return { program, port: Number(new URL(lost.origin).port) };
}

test("a server that ends and comes back is shown again, and q ends the wait for it", async () => {
  const { program, port } = await watchLostServer();
  await program.outputMatch(/No connection since .*; next attempt at/);
  expect(program.output).not.toContain(GIVEN_BACK);
  const told = program.output.length;
  const second = startTestServer({ keys: { adminKeys: ["red"] }, port });
  const since = (pattern: string): RegExp => new RegExp(`(?<=^[^]{${told}}[^]*)${pattern}`);
  const back = await program.outputMatch(since("No request runs"));
  const shown = program.output.slice(program.output.lastIndexOf("\x1b[H", back.index));
  expect(shown).not.toContain("No connection");
  await second.close();
  await program.outputMatch(new RegExp(`(?<=^[^]{${back.index}}[^]*)No connection since`));
  program.press("q");
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toEndWith(GIVEN_BACK);
});

test("a server that comes back and does not know the key any more ends it with a sentence", async () => {
  const { program, port } = await watchLostServer();
  const second = startTestServer({ keys: { adminKeys: ["green"] }, port });
  expect(await program.exitCode()).toBe(1);
  expect(program.output.slice(program.output.indexOf(GIVEN_BACK))).toContain(
    "The server does not know this API key: give one that it knows",
  );
  await second.close();
});

test("a pipe gets one picture", async () => {
  await startBusy({ keys: { adminKeys: ["red"], keys: ["blue"] } });
  const environment = { ...(process.env as Record<string, string>), BUNTING_API_KEY: "red" };
  const program = Program.bunting(["top", "--url", `${server.origin}/v1`], { environment });
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toMatch(/^Bunting \S+ {2}demo, ready\ntokens\/s/);
  expect(program.output).toContain("the-first");
  expect(program.output).not.toContain("\x1b");
});

test("without a server, or without a key that may see all, one line says so", async () => {
  await startBusy({ keys: { adminKeys: ["red"], keys: ["blue"] } });
  const run = async (...args: string[]): Promise<string> => {
    const program = Program.bunting(["top", ...args]);
    expect(await program.exitCode()).toBe(1);
    return program.errors;
  };
  expect(await run("--url", "http://127.0.0.1:1")).toBe(
    "No server answers at http://127.0.0.1:1; `bunting serve` starts one.\n",
  );
  expect(await run("--url", server.origin)).toStartWith("The server wants an API key: give one");
  expect(await run("--url", server.origin, "--api-key", "blue")).toBe(
    "bunting top shows the requests of all keys: give it a key of the operator (--admin-key of the server).\n",
  );
});

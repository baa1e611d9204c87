/**
 * Cost of streams for the server, compared with a bare Bun.serve that writes the same text. Measures
 * processor time per token of many streams, memory of waiting streams, and memory after many requests with
 * random ends. Each server has a separate process, whose time and memory come from the kernel (Linux).
 * Clients only read, in the process of the benchmark, and do not count.
 *
 * Times are of the serving thread and of the whole process, whose other threads run Bun's JIT and garbage
 * collection. The measured server's engine computes nothing: on a timer it reports a token for every stream,
 * as the bare server writes a chunk on a timer. With long steps the thread mostly sleeps. Cold processor
 * caches and a lowered clock then cost most for whatever touches most memory. With short steps the thread is
 * busy, as it is when its cost matters.
 *
 *   bun benchmarks/streams.ts [--streams 512] [--tokens 400] [--step-ms 3,20] [--idle 10000] [--requests 100000]
 */

import { readdirSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import type { TokenId } from "../base/token.ts";
import type { Finish, SequenceId } from "../scheduler/core.ts";
import type { EngineLink } from "../scheduler/fleet/fleet.ts";
import { type EngineMessage, type EngineReport, idleLoad } from "../scheduler/messages.ts";
import { table } from "../server/cli/table.ts";
import { deviceSpec } from "../simulation/factories.ts";
import { demoFolder, startTestServer } from "../tests/e2e/server.ts";
import { loadTokenizer } from "../text/tokenizer.ts";

const ROUNDS = 5;
/** Length of the token cycle. */
const DRAWS = 65_536;
/** Chunks of a stream before the timed part. */
const CHUNKS_BEFORE = 10;
const AT_ONCE = 64;
const TELL_TIMES = 5;

const { values } = parseArgs({
  options: {
    streams: { type: "string", default: "512" },
    tokens: { type: "string", default: "400" },
    "step-ms": { type: "string", default: "3,20" },
    idle: { type: "string", default: "10000" },
    requests: { type: "string", default: "100000" },
    /** Set in a server's own process. */
    serve: { type: "string" },
    chunk: { type: "string", default: "" },
  },
});

/**
 * Server with a timed engine, with waiting streams, or with quick answers. Or a bare server that writes a
 * chunk per token on a timer: one text for all streams, or each stream's own text, assembled around its
 * token's text.
 */
type Role = "ours" | "waiting" | "quick" | "bare" | "joining";

if (values.serve !== undefined) serve(values.serve as Role);
else await main();

/** Runs one of the measured servers in this process. */
function serve(role: Role): void {
  tellPort(role === "bare" || role === "joining" ? serveBare(role) : serveEngine(role));
}

function serveEngine(role: Exclude<Role, "bare" | "joining">): string {
  const server = startTestServer({
    stepMs: role === "waiting" ? 60_000 : 0.2,
    spec: { pages: 65_536, stepTokensMax: 16_384, stepChunksMax: 1024 },
    engine: { queueMax: 100_000, ...(role === "waiting" ? { admission: { sequencesMax: 1 } } : {}) },
    limits: { commitMs: 1 },
    ...(role === "ours" ? { link: (tell) => new ClockedEngine(tell) } : {}),
  });
  return server.origin;
}

/** Token with its text and the text's JSON bytes. */
interface Drawn {
  readonly token: TokenId;
  readonly text: string;
  readonly jsonBytes: number;
}

/**
 * Draws plain pieces of the demo model's text, with Zipf frequencies by place in the vocabulary: frequent
 * pieces were merged early. The same for every server.
 */
function drawnTokens(): readonly Drawn[] {
  const tokenizer = loadTokenizer(demoFolder);
  const pieces: Drawn[] = [];
  for (let id = 0; id < tokenizer.vocabSize; id++) {
    const token = id as TokenId;
    const text = tokenizer.isAdded(token) ? null : tokenizer.textOf(token);
    if (text === null || text.length < 2) continue;
    pieces.push({ token, text, jsonBytes: Buffer.byteLength(JSON.stringify(text)) });
  }
  const random = new SeededRandom(1);
  const rank = (): number => Math.floor((pieces.length + 1) ** (random.uint32() / 2 ** 32)) - 1;
  return Array.from({ length: DRAWS }, () => pieces[rank()]!);
}

/** Engine that reports a token for each sequence at each step, and computes nothing. */
class ClockedEngine implements EngineLink {
  #running: { readonly id: SequenceId; left: number }[] = [];
  readonly #tell: (report: EngineReport) => void;
  #number = 0;
  readonly #drawn = drawnTokens();
  #draws = 0;

  constructor(tell: (report: EngineReport) => void) {
    this.#tell = tell;
    setInterval(() => this.#step(), Number(values["step-ms"]));
  }

  send(message: EngineMessage): void {
    if (message.kind !== "submit") return;
    const { id, stop } = message.sequence;
    this.#running.push({ id, left: stop.tokensMax });
    this.#report({ started: [{ sequence: id, cachedTokens: 0 }] });
  }

  #step(): void {
    const sequences: SequenceId[] = [];
    const tokens: TokenId[] = [];
    const finished: { readonly sequence: SequenceId; readonly finish: Finish }[] = [];
    for (const one of this.#running) {
      sequences.push(one.id);
      tokens.push(this.#drawn[this.#draws++ % DRAWS]!.token);
      if (--one.left === 0) finished.push({ sequence: one.id, finish: { kind: "length" } });
    }
    if (finished.length > 0) this.#running = this.#running.filter(({ left }) => left > 0);
    this.#report({ sequences, tokens, finished });
  }

  #report(news: Partial<EngineReport>): void {
    const lists = { started: [], sequences: [], tokens: [], finished: [], returned: [], warmed: [] };
    const load = { ...idleLoad(deviceSpec()), stepsTotal: this.#number };
    const rest = { prompts: [], progress: [], checked: [], accounts: [], logprobs: null, kvEvents: null };
    this.#tell({ number: this.#number++, ...lists, ...rest, load, ...news });
  }
}

function tellPort(origin: string): void {
  process.stdout.write(`${new URL(origin).port}\n`);
}

interface BareStream {
  left: number;
  readonly end: () => void;
  /** Parts of its chunks around a token's text. */
  readonly before: string;
  readonly after: string;
}

/** Splits a chunk around the JSON of its text. */
function partsOf(chunk: string): { readonly before: string; readonly after: string } {
  const [, before = "", after = ""] = /^(.*"content":)".*?"(,.*|}.*)$/s.exec(chunk) ?? [];
  return { before, after };
}

/** Starts a Bun.serve that only writes, to all streams at each step. */
function serveBare(role: "bare" | "joining"): string {
  const open = new Map<ReadableStreamDirectController, BareStream>();
  const { before, after } = partsOf(values.chunk);
  const drawn = drawnTokens();
  let draws = 0;
  setInterval(() => {
    for (const [controller, stream] of open) {
      const { text } = drawn[draws++ % DRAWS]!;
      controller.write(role === "bare" ? values.chunk : stream.before + JSON.stringify(text) + stream.after);
      if (--stream.left > 0) continue;
      open.delete(controller);
      controller.end();
      stream.end();
    }
  }, Number(values["step-ms"]));
  const source: Bun.DirectUnderlyingSource<string> = {
    type: "direct",
    pull: (controller: ReadableStreamDirectController) =>
      new Promise<void>((end) => {
        const id = crypto.randomUUID().replaceAll("-", "");
        const own = { before: before.replace(/(?<=chatcmpl-)\w+/, id), after };
        open.set(controller, { left: Number(values.tokens), end, ...own });
      }),
  };
  const fetch = async (request: Request): Promise<Response> => {
    await request.text();
    return new Response(new ReadableStream(source), { headers: { "content-type": "text/event-stream" } });
  };
  return Bun.serve({ port: 0, hostname: "127.0.0.1", fetch }).url.origin;
}

/** Processor time in microseconds. */
interface ProcessorTime {
  /** Processor time of the serving thread. */
  readonly thread: number;
  readonly process: number;
}

interface Measured {
  readonly port: number;
  processorTime(): ProcessorTime;
  rssBytes(): number;
  stop(): Promise<void>;
}

async function start(role: Role, { chunk = "", stepMs = "20" } = {}): Promise<Measured> {
  const options = ["--serve", role, "--chunk", chunk, "--tokens", values.tokens, "--step-ms", stepMs];
  const child = Bun.spawn([process.execPath, import.meta.path, ...options], {
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  const ofProcess = (file: string): string => readFileSync(`/proc/${child.pid}/${file}`, "utf8");
  return {
    port: Number(new TextDecoder().decode(value)),
    processorTime: () => {
      const microseconds = (task: string): number =>
        Number(ofProcess(`task/${task}/schedstat`).split(" ")[0]) / 1000;
      const tasks = readdirSync(`/proc/${child.pid}/task`);
      const process = tasks.reduce((sum, task) => sum + microseconds(task), 0);
      return { thread: microseconds(String(child.pid)), process };
    },
    rssBytes: () => Number(/VmRSS:\s+(\d+) kB/.exec(ofProcess("status"))![1]) * 1024,
    stop: async () => {
      child.kill();
      await child.exited;
    },
  };
}

/** Client that reads one stream and keeps nothing. */
class Reader {
  bytes = 0;
  readonly closed = Promise.withResolvers<void>();
  /** Resolves once the awaited bytes have come. */
  readonly opened = Promise.withResolvers<void>();
  #socket: Bun.Socket | null = null;
  #bytesMax = Number.POSITIVE_INFINITY;

  constructor(port: number, body: object, openBytes = 1) {
    const text = JSON.stringify({ model: "demo", stream: true, ignore_eos: true, ...body });
    const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n`;
    Bun.connect({
      hostname: "127.0.0.1",
      port,
      socket: {
        open: (socket) => {
          this.#socket = socket;
          socket.write(`${head}Content-Length: ${text.length}\r\n\r\n${text}`);
        },
        data: (socket, { length }) => {
          this.bytes += length;
          if (this.bytes >= openBytes) this.opened.resolve();
          if (this.bytes > this.#bytesMax) socket.terminate();
        },
        close: () => this.closed.resolve(),
        error: () => this.closed.resolve(),
      },
    }).catch((error: Error) => {
      this.opened.reject(error);
      this.closed.reject(error);
    });
  }

  leaveAfter(bytes: number): this {
    this.#bytesMax = bytes;
    return this;
  }

  leave(): void {
    this.#socket?.terminate();
  }
}

function bodyOf(i: number, tokens: number) {
  return { messages: [{ role: "user", content: `Stream ${i}` }], max_tokens: tokens, seed: i };
}

/** Processor time of the server per byte that clients read, while all streams run. */
async function perByte(
  { port, ...server }: Measured,
  bodies: readonly object[],
  chunkBytes: number,
): Promise<ProcessorTime> {
  const readers = bodies.map((body) => new Reader(port, body, CHUNKS_BEFORE * chunkBytes));
  await Promise.all(readers.map(({ opened }) => opened.promise));
  const read = (): number => readers.reduce((sum, { bytes }) => sum + bytes, 0);
  const from = { time: server.processorTime(), bytes: read() };
  await Promise.race(readers.map(({ closed }) => closed.promise));
  const { thread, process } = server.processorTime();
  const bytes = read() - from.bytes;
  await Promise.all(readers.map(({ closed }) => closed.promise));
  return { thread: (thread - from.time.thread) / bytes, process: (process - from.time.process) / bytes };
}

/** Returns the chunk of one token, as the server writes it. */
async function chunkOf(port: number, body: object): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "demo", stream: true, ignore_eos: true, ...body }),
  });
  const chunks = (await response.text()).split("\n\n").filter((chunk) => /"content":"./.test(chunk));
  return `${chunks[chunks.length >> 1]!}\n\n`;
}

async function active(stepMs: string): Promise<void> {
  const ours = await start("ours", { stepMs });
  const bodies = Array.from({ length: Number(values.streams) }, (_, i) => bodyOf(i, Number(values.tokens)));
  const chunk = await chunkOf(ours.port, bodies[0]!);
  const { before, after } = partsOf(chunk);
  const jsonBytes = drawnTokens().reduce((sum, drawn) => sum + drawn.jsonBytes, 0) / DRAWS;
  const chunkBytes = before.length + jsonBytes + after.length;
  const bare = await start("bare", { chunk, stepMs });
  const joining = await start("joining", { chunk, stepMs });
  const rows: string[][] = [];
  for (let round = 1; round <= ROUNDS; round++) {
    const own = await perByte(ours, bodies, chunkBytes);
    const others = [await perByte(bare, bodies, chunkBytes), await perByte(joining, bodies, chunkBytes)];
    for (const of of ["thread", "process"] as const) {
      const costs = [own, ...others].map((cost) => (cost[of] * chunkBytes).toFixed(2));
      rows.push([String(round), of, ...costs, ...others.map((other) => (own[of] / other[of]).toFixed(2))]);
    }
  }
  await Promise.all([ours, bare, joining].map((server) => server.stop()));
  const head = `${values.streams} streams, ${values.tokens} tokens each of ${chunkBytes.toFixed(0)} bytes, a step every ${stepMs} ms: processor µs per token`;
  print(head, ["round", "of", "ours", "bare, one text", "bare, own texts", "ours / one", "ours / own"], rows);
}

function print(head: string, columns: readonly string[], rows: readonly (readonly string[])[]): void {
  process.stdout.write(`${head}\n\n${table(columns, rows)}\n\n`);
}

async function idle(): Promise<void> {
  const rows: string[][] = [];
  const chunk = ": open\n\n";
  for (const role of ["waiting", "bare"] as const) {
    const server = await start(role, { chunk });
    const startBytes = server.rssBytes();
    const readers: Reader[] = [];
    const count = Number(values.idle);
    for (let from = 0; from < count; from += AT_ONCE) {
      const some = Array.from(
        { length: Math.min(AT_ONCE, count - from) },
        (_, i) => new Reader(server.port, bodyOf(from + i, 1000)),
      );
      readers.push(...some);
      if (role === "waiting") await Promise.all(some.map(({ opened }) => opened.promise));
      else await Bun.sleep(2);
    }
    const openBytes = server.rssBytes();
    for (const reader of readers) reader.leave();
    await Promise.all(readers.map(({ closed }) => closed.promise));
    await Bun.sleep(2000);
    const kib = ((openBytes - startBytes) / count / 1024).toFixed(1);
    const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(0);
    rows.push([role === "bare" ? "bare Bun.serve" : "ours", kib, mib(openBytes), mib(server.rssBytes())]);
    await server.stop();
  }
  print(
    `${values.idle} streams that wait`,
    ["server", "KiB per stream", "MiB with them", "MiB after they left"],
    rows,
  );
}

/** Runs requests of which some are aborted at a random moment; the rest are read to the end. */
async function ends(): Promise<void> {
  const server = await start("quick");
  const total = Number(values.requests);
  const rows: string[][] = [];
  let sent = 0;
  const client = async (upTo: number): Promise<void> => {
    while (sent < upTo) {
      const i = sent++;
      const reader = new Reader(server.port, bodyOf(i % 1000, 16));
      if (i % 2 === 0) reader.leaveAfter((Math.imul(i, 2_654_435_761) >>> 0) % 5000);
      await reader.closed.promise;
    }
  };
  for (let part = 1; part <= TELL_TIMES; part++) {
    const upTo = Math.round((total * part) / TELL_TIMES);
    await Promise.all(Array.from({ length: AT_ONCE }, () => client(upTo)));
    rows.push([String(sent), (server.rssBytes() / 2 ** 20).toFixed(0)]);
  }
  await server.stop();
  print(`requests with random ends, ${AT_ONCE} at once`, ["requests", "MiB"], rows);
}

async function main(): Promise<void> {
  if (Number(values.streams) > 0) for (const stepMs of values["step-ms"].split(",")) await active(stepMs);
  if (Number(values.idle) > 0) await idle();
  if (Number(values.requests) > 0) await ends();
}

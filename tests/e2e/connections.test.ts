/** HTTP/1.1 in rarely used forms, on connections whose every byte the test controls. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { connectionsMax, HttpServer } from "../../server/http/server.ts";
import { chatBody, startTestServer, type TestServer } from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer();
});
afterEach(() => server.settled());
afterAll(() => server.close());

interface Answer {
  readonly status: number;
  readonly head: string;
  readonly body: string;
}

/** Connection that sends raw bytes. */
class Client {
  #received = Buffer.alloc(0);
  #wake = (): void => {};
  #isClosed = false;
  #socket!: Bun.Socket;

  static async open(origin = server.origin): Promise<Client> {
    const client = new Client();
    client.#socket = await Bun.connect({
      hostname: "127.0.0.1",
      port: Number(new URL(origin).port),
      socket: {
        data: (_socket, bytes) => {
          client.#received = Buffer.concat([client.#received, bytes]);
          client.#wake();
        },
        close: () => {
          client.#isClosed = true;
          client.#wake();
        },
      },
    });
    return client;
  }

  send(text: string | Uint8Array): this {
    this.#socket.write(text);
    return this;
  }

  /** Stops reading. */
  pause(): this {
    this.#socket.pause();
    return this;
  }

  leave(): void {
    this.#socket.terminate();
  }

  close(): void {
    this.#socket.end();
  }

  /** Resolves once any bytes have arrived. */
  async heard(): Promise<void> {
    await this.#until(() => (this.#received.length > 0 ? 0 : -1));
  }

  /** Reads the next complete answer; `hasBody` is false for HEAD. */
  async answer(hasBody = true): Promise<Answer> {
    const end = await this.#until(() => this.#received.indexOf("\r\n\r\n"));
    const head = this.#take(end + 4).toString("latin1");
    const status = Number(/^HTTP\/1\.1 (\d+)/.exec(head)?.[1]);
    if (!hasBody || status === 100 || status === 204) return { status, head, body: "" };
    const length = /^content-length: (\d+)/im.exec(head)?.[1];
    if (length !== undefined) {
      await this.#until(() => (this.#received.length >= Number(length) ? 0 : -1));
      return { status, head, body: this.#take(Number(length)).toString() };
    }
    if (!/^transfer-encoding: chunked/im.test(head)) {
      await this.closed();
      return { status, head, body: this.#take(this.#received.length).toString() };
    }
    const parts: Buffer[] = [];
    for (;;) {
      const line = await this.#until(() => this.#received.indexOf("\r\n"));
      const size = Number.parseInt(this.#take(line + 2).toString("latin1"), 16);
      await this.#until(() => (this.#received.length >= size + 2 ? 0 : -1));
      parts.push(this.#take(size));
      expect(this.#take(2).toString()).toBe("\r\n");
      if (size === 0) return { status, head, body: Buffer.concat(parts).toString() };
    }
  }

  /** Resolves once the server has closed the connection. */
  async closed(): Promise<void> {
    while (!this.#isClosed) await this.#news();
  }

  async #until(find: () => number): Promise<number> {
    for (;;) {
      const at = find();
      if (at >= 0) return at;
      if (this.#isClosed) throw new Error(`closed behind ${this.#received}`);
      await this.#news();
    }
  }

  #news(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  #take(length: number): Buffer {
    const taken = this.#received.subarray(0, length);
    this.#received = this.#received.subarray(length);
    return taken;
  }
}

const get = (path: string, more = ""): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${more}\r\n`;

function postOf(body: object, more = ""): string {
  const json = JSON.stringify(body);
  const type = "Content-Type: application/json\r\n";
  return `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n${type}${more}Content-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`;
}

const short = (more: object = {}) => chatBody("Hello", { max_tokens: 4, seed: 1, ...more });
const contentOf = ({ body }: Answer) => JSON.parse(body).choices[0].message.content;

describe("requests behind one that is not answered yet", () => {
  test("are answered in their order, however they are sent", async () => {
    const requests = [
      postOf(short()),
      get("/health"),
      postOf(short({ stream: true })),
      get("/v1/models"),
      postOf(short()),
    ];
    const text = requests.join("");
    const whole = await Client.open();
    whole.send(text);
    const apart = await Client.open();
    for (const byte of Buffer.from(text)) apart.send(new Uint8Array([byte]));
    for (const client of [whole, apart]) {
      const first = await client.answer();
      expect(await client.answer()).toMatchObject({ status: 200, body: '{"status":"ok"}' });
      expect((await client.answer()).body).toEndWith("data: [DONE]\n\n");
      expect(JSON.parse((await client.answer()).body).object).toBe("list");
      expect(contentOf(await client.answer())).toBe(contentOf(first));
      client.leave();
    }
  });

  test("wait in any number", async () => {
    const client = (await Client.open()).send(postOf(short()) + get("/health").repeat(2000));
    expect((await client.answer()).status).toBe(200);
    for (let i = 0; i < 2000; i++) expect((await client.answer()).body).toBe('{"status":"ok"}');
    client.leave();
  });

  test("do not keep a neighbour waiting", async () => {
    const order: string[] = [];
    const neighbours: Client[] = [];
    const own = new HttpServer("127.0.0.1", 0, (request) => {
      const path = new URL(request.url).pathname;
      order.push(path);
      if (order.length <= 3) neighbours[order.length - 1]!.send(get("/neighbour"));
      return new Response("done");
    });
    for (let i = 0; i < 3; i++) neighbours.push(await Client.open(own.origin));
    const crowd = (await Client.open(own.origin)).send(get("/crowd").repeat(5000));
    for (const client of neighbours) expect((await client.answer()).body).toBe("done");
    expect(order.filter((path) => path === "/crowd").length).toBeLessThan(1000);
    for (let i = 0; i < 5000; i++) expect((await crowd.answer()).body).toBe("done");
    await own.kill();
  });

  // The server does not read a connection with waiting requests: it notices a lost client only when it
  // writes.
  test.each([
    ["resets the connection", (client: Client) => client.leave()],
    ["closes it", (client: Client) => client.close()],
  ])("end with it when its client %s", async (_what, go) => {
    const client = await Client.open();
    client.send(postOf(short({ stream: true, max_tokens: 1000 })) + postOf(short()));
    await client.heard();
    const tokens = () => server.fleet.loads()[0]!.generatedTokensTotal;
    const before = tokens();
    go(client);
    await server.settled();
    expect(tokens() - before).toBeLessThan(900);
  });

  test("are not read when the one before asked for an end", async () => {
    const client = (await Client.open()).send(get("/health", "Connection: close\r\n") + get("/health"));
    expect((await client.answer()).head).toMatch(/^connection: close/im);
    await client.closed();
  });
});

describe("trailers of a body in chunks", () => {
  /** Makes a chat request in one chunk that ends in trailers. */
  function chatWith(trailers: string): string {
    const json = JSON.stringify(short());
    const head = postOf(short()).replace(/Content-Length: .*$/s, "Transfer-Encoding: chunked\r\n\r\n");
    return `${head}${json.length.toString(16)}\r\n${json}\r\n0\r\n${trailers}\r\n`;
  }

  test("are headers neither of their request nor of the next, and its key is not theirs", async () => {
    const keyed = startTestServer({ keys: { keys: ["secret"] } });
    const authorized = chatWith("Authorization: Bearer secret\r\nX-Request-Id: trailed\r\n");
    for (const pause of [false, true]) {
      const client = (await Client.open(keyed.origin)).send(authorized);
      const first = pause ? await client.answer() : null;
      client.send(get("/v1/models"));
      for (const answer of [first ?? (await client.answer()), await client.answer()]) {
        expect([answer.status, /^x-request-id: trailed/im.test(answer.head)]).toEqual([401, false]);
      }
      client.send(get("/v1/models", "Authorization: Bearer secret\r\n"));
      expect((await client.answer()).status).toBe(200);
      client.leave();
    }
    await keyed.close();
  });

  test.each([
    ["a line like a request's", "GET /v1/nothing: x\r\n", 400],
    ["lengths", "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n", 400],
    ["a host and an origin", "Host: evil.example\r\nOrigin: https://evil.example\r\n", 200],
    ["more headers than the parser hands out at once", "X: y\r\n".repeat(200), 200],
    ["no end to them", `X: ${"y".repeat(2 ** 20)}`, 400],
  ])("with %s change nothing of the next request", async (_what, trailers, status) => {
    const client = (await Client.open()).send(chatWith(trailers));
    expect((await client.answer()).status).toBe(status);
    if (status === 200) {
      expect(await client.send(get("/health")).answer()).toMatchObject({
        status: 200,
        body: '{"status":"ok"}',
      });
      client.leave();
    } else await client.closed();
  });
});

describe("what is no request", () => {
  test.each([
    ["a method that HTTP does not know", "FOO /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400],
    ["a line that is no header", "GET /health HTTP/1.1\r\nHost localhost\r\n\r\n", 400],
    ["another protocol", "\u0016\u0003\u0001", 400],
    ["another version", "GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505],
    ["HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505],
    ["a head without end", `GET /health HTTP/1.1\r\nX: ${"x".repeat(20_000)}`, 431],
  ])("%s is refused with a reason behind the answers before it", async (_what, text, status) => {
    const client = (await Client.open()).send(postOf(short()) + text);
    expect((await client.answer()).status).toBe(200);
    const refusal = await client.answer();
    expect(refusal.status).toBe(status);
    expect(JSON.parse(refusal.body).error.message).toBeString();
    await client.closed();
  });

  test("a method that no route takes is refused, and the connection goes on", async () => {
    const client = await Client.open();
    for (const method of ["PROPFIND", "PATCH", "TRACE"]) {
      client.send(`${method} /health HTTP/1.1\r\nHost: localhost\r\n\r\n`);
      expect((await client.answer()).status).toBe(405);
    }
    expect((await client.send(get("/health")).answer()).status).toBe(200);
    client.leave();
  });

  test("line breaks before a request harm nothing", async () => {
    const client = (await Client.open()).send(`\r\n\r\n${postOf(short())}\r\n${get("/health")}`);
    expect((await client.answer()).status).toBe(200);
    expect((await client.answer()).status).toBe(200);
    client.send("\r\n").send(get("/health"));
    expect((await client.answer()).status).toBe(200);
    client.leave();
  });

  test("a body in chunks that breaks off in nonsense", async () => {
    const head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    const client = (await Client.open()).send(`${head}Transfer-Encoding: chunked\r\n\r\n3\r\n{"m\r\n`);
    client.send("zz\r\n");
    const refusal = await client.answer();
    expect([refusal.status, JSON.parse(refusal.body).error.message]).toEqual([
      400,
      "the request body ended too early",
    ]);
    await client.closed();
  });
});

describe("a connection", () => {
  test("takes a body in chunks, cut anywhere", async () => {
    const json = JSON.stringify(short());
    const chunks = [...json].map((letter) => `1\r\n${letter}\r\n`).join("");
    const head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    const client = (await Client.open()).send(`${head}Transfer-Encoding: chunked\r\n\r\n${chunks}0\r\n\r\n`);
    expect((await client.answer()).status).toBe(200);
    client.leave();
  });

  test("tells a client that asks to send its body, and only when a route wants it", async () => {
    const request = postOf(short(), "Expect: 100-continue\r\n");
    const end = request.indexOf("\r\n\r\n") + 4;
    const client = (await Client.open()).send(request.slice(0, end));
    expect((await client.answer()).status).toBe(100);
    expect((await client.send(request.slice(end)).answer()).status).toBe(200);
    client.send(request.slice(0, end).replace("/v1/chat/completions", "/v1/nothing"));
    expect((await client.answer()).status).toBe(404);
    await client.closed();
  });

  test("ends behind an answer that came before its request's end, which is read", async () => {
    const client = (await Client.open()).send(
      postOf(short()).replace("/v1/chat/completions", "/v1/nothing").slice(0, -1),
    );
    const { status, head } = await client.answer();
    expect([status, /^connection: close/im.test(head)]).toEqual([404, true]);
    client.send("}");
    await client.closed();
  });

  test("of HTTP/1.0 ends with its answer, unless it asks to be kept, and gets no chunks", async () => {
    const old = (text: string) => text.replace("HTTP/1.1", "HTTP/1.0");
    const client = (await Client.open()).send(old(get("/health", "Connection: keep-alive\r\n")));
    expect((await client.answer()).head).toMatch(/^connection: keep-alive/im);
    client.send(old(postOf(short({ stream: true }), "Connection: keep-alive\r\n")));
    const stream = await client.answer();
    expect(stream.head).not.toContain("transfer-encoding");
    expect(stream.body).toEndWith("data: [DONE]\n\n");
  });

  test("that offers another protocol goes on with this one", async () => {
    const offer =
      "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    const client = (await Client.open()).send(
      postOf(short(), offer) + get("/health", offer) + get("/health"),
    );
    for (let i = 0; i < 3; i++) expect((await client.answer()).status).toBe(200);
    client.leave();
  });

  test("answers HEAD with the head alone", async () => {
    const client = (await Client.open()).send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const { head } = await client.answer(false);
    expect(head.match(/^content-length: .*$/gim)).toEqual(["content-length: 15"]);
    expect((await client.send(get("/health")).answer()).body).toBe('{"status":"ok"}');
    client.leave();
  });

  test("holds no stream open behind the head that HEAD asked for", async () => {
    const client = await Client.open();
    for (let i = 0; i < 65; i++) {
      client.send("HEAD /state/stream?view=live HTTP/1.1\r\nHost: localhost\r\n\r\n");
      expect((await client.answer(false)).status).toBe(200);
    }
    client.leave();
  });

  test("takes a target with its host in it, and headers by the dozen", async () => {
    const many = Array.from({ length: 90 }, (_, i) => `X-${i}: ${i}\r\n`).join("");
    const client = (await Client.open()).send(get("http://localhost/health", many));
    expect((await client.answer()).status).toBe(200);
    client.leave();
  });

  test.each([
    ["as a whole", (body: string) => new Response(body)],
    [
      "piece by piece",
      (body: string) => new Response(body, { headers: { "content-length": `${body.length}` } }),
    ],
  ])(
    "is given up when an answer that is sent %s is not taken",
    async (_what, answer) => {
      const own = new HttpServer("127.0.0.1", 0, () => answer("x".repeat(2 ** 26)), { clientWaitS: 1 });
      const client = (await Client.open(own.origin)).send(get("/"));
      await client.heard();
      client.pause();
      await own.stop();
      client.leave();
    },
    20_000,
  );

  test("for which there is no room takes the place of the one that was idle longest", async () => {
    const own = new HttpServer("127.0.0.1", 0, () => new Response("done"), { connections: 2 });
    const [first, second] = [await Client.open(own.origin), await Client.open(own.origin)];
    for (const client of [second, first]) expect((await client.send(get("/")).answer()).body).toBe("done");
    const third = await Client.open(own.origin);
    expect((await third.send(get("/")).answer()).body).toBe("done");
    await second.closed();
    for (const client of [first, third]) expect((await client.send(get("/")).answer()).body).toBe("done");
    await own.kill();
  });

  test("for which there is no room beside those that are answered is refused", async () => {
    const gate = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    let count = 0;
    const own = new HttpServer(
      "127.0.0.1",
      0,
      async () => {
        if (++count === 2) asked.resolve();
        await gate.promise;
        return new Response("done");
      },
      { connections: 2 },
    );
    const held = [await Client.open(own.origin), await Client.open(own.origin)] as const;
    for (const client of held) client.send(get("/"));
    await asked.promise;
    const third = await Client.open(own.origin);
    const { status, body } = await third.answer();
    expect([status, JSON.parse(body).error.type]).toEqual([503, "overloaded_error"]);
    await third.closed();
    gate.resolve();
    for (const client of held) expect((await client.answer()).body).toBe("done");
    const next = await Client.open(own.origin);
    expect((await next.send(get("/")).answer()).body).toBe("done");
    await own.kill();
  });

  test("is one of fewer than there may be open files", () => {
    const limits = (files: string) =>
      `Limit  Soft Limit  Hard Limit  Units\nMax open files  ${files}  ${files}  files\n`;
    expect([300, 20, 524_288].map((files) => connectionsMax(limits(`${files}`)))).toEqual([217, 16, 491_456]);
    expect([connectionsMax(limits("unlimited")), connectionsMax("")]).toEqual([
      Number.POSITIVE_INFINITY,
      Number.POSITIVE_INFINITY,
    ]);
  });

  test("is closed when the server stops, behind the answer that is given", async () => {
    const gate = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const own = new HttpServer("127.0.0.1", 0, async (request) => {
      if (request.url.endsWith("/slow")) {
        asked.resolve();
        await gate.promise;
      }
      return new Response("done");
    });
    const [idle, busy] = [await Client.open(own.origin), await Client.open(own.origin)];
    expect((await idle.send(get("/")).answer()).body).toBe("done");
    busy.send(get("/slow"));
    await asked.promise;
    const stopped = own.stop();
    gate.resolve();
    const answer = await busy.answer();
    expect([answer.body, /^connection: close/im.test(answer.head)]).toEqual(["done", true]);
    await Promise.all([stopped, idle.closed(), busy.closed()]);
    expect(Client.open(own.origin)).rejects.toThrow();
  });
});

describe("a client that takes its time", () => {
  /** Sends a byte at each answer to another client, until the slow client is answered. */
  async function trickle(own: { readonly origin: string }, slow: Client, byte: string): Promise<Answer> {
    const clock = await Client.open(own.origin);
    let answer: Answer | null = null;
    const answered = slow.answer().then((given) => {
      answer = given;
    });
    while (answer === null) {
      slow.send(byte);
      await clock.send(get("/health")).answer();
    }
    await answered;
    clock.leave();
    return answer;
  }

  test.each([
    ["a head, byte by byte", "GET / HTTP/1.1\r\nHost: localhost\r\nX: ", "x"],
    ["line breaks before a head", "", "\r\n"],
    ["a head behind an answer", `${get("/")}GET /`, "x"],
  ])("for %s, is told so and cut off", async (_what, start, byte) => {
    const own = new HttpServer("127.0.0.1", 0, () => new Response("done"), { headWaitMs: 50 });
    const client = await Client.open(own.origin);
    client.send(start);
    if (start.startsWith(get("/"))) expect((await client.answer()).body).toBe("done");
    const { status, body } = await trickle(own, client, byte);
    expect([status, JSON.parse(body).error.type]).toEqual([408, "timeout_error"]);
    await client.closed();
    await own.kill();
  });

  test("for a body, byte by byte, is told so and cut off", async () => {
    const own = startTestServer({ limits: { bodyGraceMs: 100, bodyBytesPerSecondMin: 2 ** 20 } });
    const client = await Client.open(own.origin);
    client.send(postOf(short({ user: "x".repeat(2 ** 20) })).slice(0, 300));
    const { status, body } = await trickle(own, client, "x");
    expect([status, JSON.parse(body).error.type]).toEqual([408, "timeout_error"]);
    await client.closed();
    await own.close();
  });
});

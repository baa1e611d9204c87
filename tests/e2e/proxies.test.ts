/** Configurations of docs/reference/proxies.md, each in its proxy, if installed. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chatBody, startTestServer, type TestServer } from "./server.ts";

interface Proxy {
  readonly program: string;
  /** Builds the complete file around the page's configuration. */
  fileOf(told: string, folder: string): string;
  commandOf(file: string): readonly string[];
}

const proxies: readonly Proxy[] = [
  {
    program: "nginx",
    fileOf: (told, folder) => {
      const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
        (name) => `${name}_temp_path ${folder}/${name};`,
      );
      return `daemon off; master_process off; pid ${folder}/pid; error_log stderr; events {}\nhttp { access_log off; ${paths.join(" ")}\n${told}\n}\n`;
    },
    commandOf: (file) => ["nginx", "-c", file],
  },
  {
    program: "haproxy",
    fileOf: (told) => `${told}\n`,
    commandOf: (file) => ["haproxy", "-db", "-f", file],
  },
  {
    program: "caddy",
    fileOf: (told) => `{\n  admin off\n}\n${told}\n`,
    commandOf: (file) => ["caddy", "run", "--adapter", "caddyfile", "--config", file],
  },
];

const page = readFileSync(join(import.meta.dir, "../../docs/reference/proxies.md"), "utf8");

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { readonly port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Opens a raw connection; returns it with the bytes received and a function to send. */
async function connect(port: number) {
  let received = "";
  let wake = (): void => {};
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port,
    socket: {
      data: (_socket, bytes) => {
        received += bytes.toString("latin1");
        wake();
      },
      close: () => wake(),
      error: () => wake(),
    },
  });
  return {
    send: (text: string) => socket.write(text),
    until: async (pattern: RegExp): Promise<string> => {
      while (!pattern.test(received)) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      return received;
    },
    forget: () => {
      received = "";
    },
    leave: () => socket.terminate(),
  };
}

const host = "Host: chat.example\r\n";
const json = "Content-Type: application/json\r\n";
const key = "Authorization: Bearer secret\r\n";

function chatText(more: object): string {
  const body = JSON.stringify(chatBody("Hello", { seed: 1, ignore_eos: true, ...more }));
  return `POST /v1/chat/completions HTTP/1.1\r\n${host}${key}${json}Content-Length: ${body.length}\r\n\r\n${body}`;
}

for (const { program, fileOf, commandOf } of proxies) {
  describe.skipIf(Bun.which(program) === null)(`behind ${program}`, () => {
    let server: TestServer;
    let proxy: Bun.Subprocess;
    let folder: string;
    let port: number;
    beforeAll(async () => {
      server = startTestServer({
        ...{ stepMs: 5, keys: { keys: ["secret"] }, allowedHosts: ["chat.example"] },
        // The same answer again would come in a few steps.
        engine: { drafts: { kind: "off" } },
      });
      folder = mkdtempSync(join(tmpdir(), "bunting-proxy-"));
      port = await freePort();
      const told = new RegExp(`\`\`\`${program}\n(.*?)\`\`\``, "s").exec(page)![1]!;
      const own = told
        .replaceAll("127.0.0.1:8000", new URL(server.origin).host)
        .replaceAll("8080", String(port));
      const file = join(folder, "config");
      writeFileSync(file, fileOf(own, folder));
      proxy = Bun.spawn([...commandOf(file)], {
        stdout: "ignore",
        stderr: "ignore",
        env: { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
      });
      // The proxies do not report when they listen.
      for (let isUp = false; !isUp; ) {
        isUp = await connect(port).then(
          (client) => {
            client.leave();
            return true;
          },
          () => Bun.sleep(20).then(() => false),
        );
      }
    });
    afterAll(async () => {
      proxy.kill("SIGKILL");
      await proxy.exited;
      await server.close();
      rmSync(folder, { recursive: true });
    });

    test.each([
      ["of server-sent events", "/v1/chat/completions", { max_tokens: 200 }, /data: \[DONE\]\n\n/],
      ["of Ollama's lines", "/api/chat", { options: { num_predict: 200 } }, /"done":true/],
    ])("a stream %s comes as it is written", async (_what, path, more, end) => {
      const client = await connect(port);
      client.send(chatText({ stream: true, ...more }).replace("/v1/chat/completions", path));
      await client.until(/"content":"./);
      expect(server.fleet.active).toBe(1);
      expect(await client.until(end)).toMatch(/^HTTP\/1\.1 200/);
      client.leave();
      await server.settled();
    });

    test.each([
      ["a stream", true],
      ["a whole answer", false],
    ])("a client that leaves before the end of %s ends its request", async (_what, stream) => {
      const drawn = () => server.fleet.loads()[0]!.generatedTokensTotal;
      const before = drawn();
      const client = await connect(port);
      client.send(chatText({ stream, max_tokens: 1000 }));
      while (drawn() === before) await new Promise((resolve) => setImmediate(resolve));
      client.leave();
      await server.settled();
      expect(drawn() - before).toBeLessThan(900);
    });

    test("a large body is taken", async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/v1/chat/completions`, {
        method: "POST",
        headers: { host: "chat.example", "content-type": "application/json", authorization: "Bearer secret" },
        body: JSON.stringify(chatBody("Hello", { max_tokens: 1, user: "x".repeat(3 * 2 ** 20) })),
      });
      expect(answer.status).toBe(200);
      await answer.arrayBuffer();
    });

    // The proxy sends the requests of both clients on one connection.
    test("trailers of one client are no headers of another", async () => {
      const chat = JSON.stringify(chatBody("Hello", { max_tokens: 1 }));
      const trailers = "X-Request-Id: trailed\r\nOrigin: https://evil.example\r\n";
      for (let i = 0; i < 10; i++) {
        const attacker = await connect(port);
        attacker.send(
          `POST /v1/chat/completions HTTP/1.1\r\n${host}${key}${json}Trailer: x-request-id, origin\r\nTransfer-Encoding: chunked\r\n\r\n${chat.length.toString(16)}\r\n${chat}\r\n0\r\n${trailers}\r\n`,
        );
        expect(await attacker.until(/"usage".*\}$/s)).toMatch(/^HTTP\/1\.1 200(?!.*trailed)/s);
        attacker.forget();
        // HAProxy reuses another client's connection only from a client's second request on.
        const victim = await connect(port);
        for (const client of [victim, attacker, victim]) {
          client.send(`GET /health HTTP/1.1\r\n${host}\r\n`);
          expect(await client.until(/"ok"/)).toMatch(/^HTTP\/1\.1 200(?!.*trailed)/s);
          client.forget();
        }
        attacker.leave();
        victim.leave();
      }
    });
  });
}

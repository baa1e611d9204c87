/**
 * Byte sequences known from request smuggling, which parsers may split into different requests: the server
 * parses them in one way, or refuses them.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { bodyPieces } from "../../server/http/body-pieces.ts";
import { HttpServer } from "../../server/http/server.ts";

let server: HttpServer;
/** Parsed requests in order, by the case number in their path. */
const taken = new Map<string, string[]>();
beforeAll(() => {
  const pace = { bodyGraceMs: 300, bodyBytesPerSecondMin: 1024 };
  server = new HttpServer(
    "127.0.0.1",
    0,
    async (request) => {
      const [, number = "", name = ""] = new URL(request.url).pathname.split("/");
      const list = taken.get(number) ?? [];
      taken.set(number, list);
      const at = list.push("broken") - 1;
      let body = "";
      try {
        for await (const piece of bodyPieces(request, pace)) body += Buffer.from(piece).toString("latin1");
      } catch {
        return new Response("broken", { status: 400 });
      }
      list[at] = `${request.method} ${name} ${body}`.trim();
      return new Response("taken");
    },
    { headWaitMs: 300 },
  );
});
afterAll(() => server.kill());

/** Sends bytes in pieces; resolves to the server's answer once it closes the connection. */
async function say(pieces: readonly string[]): Promise<string> {
  const closed = Promise.withResolvers<void>();
  let heard = "";
  const socket = await Bun.connect({
    hostname: "127.0.0.1",
    port: server.port,
    socket: {
      data: (_socket, bytes) => {
        heard += bytes.toString("latin1");
      },
      close: () => closed.resolve(),
      error: () => closed.resolve(),
    },
  });
  for (const piece of pieces) {
    socket.write(Buffer.from(piece, "latin1"));
    if (pieces.length > 1) await new Promise((resolve) => setImmediate(resolve));
  }
  await closed.promise;
  return heard;
}

let count = 0;

/**
 * Runs a case; `%` in the bytes stands for its number. A last request follows, which asks the server to close
 * the connection.
 */
async function outcomeOf(bytes: string, cut: (text: string) => readonly string[]) {
  const number = String(count++);
  const whole = `${bytes}GET /%/end HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
  const heard = await say(cut(whole.replaceAll("%", number)));
  const statuses = [...heard.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));
  return { taken: taken.get(number) ?? [], last: statuses.at(-1) ?? 0 };
}

const whole = (text: string): readonly string[] => [text];
const halves = (text: string): readonly string[] => [
  text.slice(0, text.length >> 1),
  text.slice(text.length >> 1),
];
/** Splits a long text into pieces of some bytes, and a short one into single bytes. */
const bits = (text: string): readonly string[] =>
  text.match(new RegExp(`.{1,${Math.ceil(text.length / 400)}}`, "gs"))!;

type Case = readonly [name: string, bytes: string];

function refuses(title: string, cases: readonly Case[], sooner: readonly string[] = []): void {
  describe(title, () => {
    test.each(cases.map(([name, bytes]) => [JSON.stringify(name), bytes] as const))(
      "%s is refused",
      async (_name, bytes) => {
        for (const cut of [whole, halves, bits]) {
          const { taken, last } = await outcomeOf(bytes, cut);
          expect(taken.filter((one) => one !== "broken")).toEqual([...sooner]);
          expect(last).toBeGreaterThanOrEqual(400);
        }
      },
    );
  });
}

function takes(title: string, expected: string, cases: readonly Case[]): void {
  describe(title, () => {
    test.each(cases.map(([name, bytes]) => [JSON.stringify(name), bytes] as const))(
      "%s is taken",
      async (_name, bytes) => {
        for (const cut of [whole, halves, bits]) {
          expect((await outcomeOf(bytes, cut)).taken).toEqual([expected, "GET end"]);
        }
      },
    );
  });
}

const host = "Host: x\r\n";
const smuggled = "GET /%/smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
const post = (headers: string, body: string): string => `POST /%/a HTTP/1.1\r\n${host}${headers}\r\n${body}`;
const get = (headers: string, line = "GET /%/a HTTP/1.1"): string => `${line}\r\n${host}${headers}\r\n`;
const chunked = (body: string): string => post("Transfer-Encoding: chunked\r\n", body);
const named = (values: readonly string[], bytes: (value: string) => string): readonly Case[] =>
  values.map((value) => [value, bytes(value)]);
const times = <A, B>(as: readonly A[], bs: readonly B[]): readonly (readonly [A, B])[] =>
  as.flatMap((a) => bs.map((b) => [a, b] as const));

const codings = [
  "chunked",
  "Chunked",
  "identity, chunked",
  "chunked, identity",
  "xchunked",
  "chunked;q=1",
  '"chunked"',
  "\u000bchunked",
  "gzip",
];
const lengths = ["0", "4", "6", "60"];

refuses(
  "a length and chunks",
  times(codings, lengths).flatMap(([coding, length]): Case[] => {
    const [a, b] = [`Content-Length: ${length}\r\n`, `Transfer-Encoding: ${coding}\r\n`];
    const body = `0\r\n\r\n${smuggled}`;
    return [
      [a + b, post(a + b, body)],
      [b + a, post(b + a, body)],
    ];
  }),
);

refuses(
  "codings that do not end in chunks",
  named(
    [
      "chunked, identity",
      "chunked, chunked",
      "gzip, chunked",
      "identity, chunked",
      "xchunked",
      "identity",
      "gzip",
      "chunked, gzip",
      "chunked;q=1",
      '"chunked"',
    ],
    (coding) => post(`Transfer-Encoding: ${coding}\r\n`, `1\r\nx\r\n0\r\n\r\n${smuggled}`),
  ),
);

refuses(
  "names of headers that are not names",
  named(
    [
      "Transfer-Encoding ",
      "Transfer-Encoding\t",
      " Transfer-Encoding",
      "Transfer-Encoding\u0000",
      "Transfer Encoding",
      "Transfer-Encoding\r",
      "Transfer-Encoding\n",
      "\u00a0Transfer-Encoding",
      "(Transfer-Encoding)",
      "",
    ],
    (name) => post(`Content-Length: 5\r\n${name}: chunked\r\n`, `0\r\n\r\n${smuggled}`),
  ),
);

refuses(
  "lengths that are none",
  named(
    [
      "+1",
      "-1",
      "1 1",
      "1,1",
      "1, 1",
      "0x1",
      "1.0",
      "1e0",
      "",
      "x",
      "18446744073709551616",
      "99999999999999999999999",
      "1\u000b",
      "１",
    ],
    (length) => post(`Content-Length: ${Buffer.from(length).toString("latin1")}\r\n`, `x${smuggled}`),
  ),
);

refuses(
  "lengths that differ",
  times(["1", "2", "0"], ["3", "40"]).map(
    ([a, b]): Case => [
      `${a} and ${b}`,
      post(`Content-Length: ${a}\r\nContent-Length: ${b}\r\n`, `xxx${smuggled}`),
    ],
  ),
);

refuses(
  "sizes of chunks that are none",
  named(
    ["+1", "-1", "0x1", "1h", "", "g", " 1", "1 1", "1,", "fffffffffffffffff", "1\u0000", "1\n", "\r\n1"],
    (size) => chunked(`${size}\r\nx\r\n0\r\n\r\n${smuggled}`),
  ),
);

refuses(
  "ends of chunks that are none",
  named(
    [
      "1\nx\r\n0\r\n\r\n",
      "1\rx\r\n0\r\n\r\n",
      "1\r\r\nx\r\n0\r\n\r\n",
      "1\r\nx0\r\n\r\n",
      "1\r\nx\n0\r\n\r\n",
      "1\r\nx\r0\r\n\r\n",
      "1\r\nxy\r\n0\r\n\r\n",
      "2\r\nx\r\n0\r\n\r\n",
      "1\r\nx\r\n0\n\n",
      "1\r\nx\r\n0\r\r\n",
    ],
    (body) => chunked(body + smuggled),
  ),
);

refuses(
  "extensions of chunks without end",
  named([";a", ";a=", ';a="'], (extension) =>
    chunked(`1${extension}${"x".repeat(40_000)}\r\nx\r\n0\r\n\r\n`),
  ),
);

refuses(
  "trailers that are no headers",
  named(
    [
      "GET /%/smuggled HTTP/1.1",
      "X y",
      " X: y",
      "X : y",
      "X: y\n\n",
      "X: a\rb",
      "Content-Length: 3",
      `X: ${"y".repeat(40_000)}`,
    ],
    (trailer) => chunked(`1\r\nx\r\n0\r\n${trailer}\r\n\r\n`),
  ),
);

refuses("line breaks that are none", [
  ["in a request line", "GET /%/a\nHTTP/1.1\r\nHost: x\r\n\r\n"],
  ["at the end of a request line", "GET /%/a HTTP/1.1\nHost: x\r\n\r\n"],
  ["CR at the end of a request line", "GET /%/a HTTP/1.1\rHost: x\r\n\r\n"],
  ["two CR", "GET /%/a HTTP/1.1\r\r\nHost: x\r\n\r\n"],
  ["at the end of a header", get("A: b\nC: d\r\n")],
  ["CR at the end of a header", get("A: b\rC: d\r\n")],
  ["CR in a value", get("A: b\rc\r\n")],
  ["before a hidden header", post("A: b\rContent-Length: 50\r\nContent-Length: 1\r\n", `x${smuggled}`)],
  ["at the end of a head", `GET /%/a HTTP/1.1\r\n${host}\n`],
  ["alone everywhere", "GET /%/a HTTP/1.1\nHost: x\n\n"],
  ["a folded header", get("A: b\r\n c\r\n")],
  ["a folded length", post("Content-Length:\r\n 40\r\n", smuggled)],
  ["a folded first header", "GET /%/a HTTP/1.1\r\n Host: x\r\n\r\n"],
]);

refuses(
  "request lines that are none",
  named(
    [
      "GET",
      "GET /%/a",
      "GET /%/a HTTP",
      "GET /%/a HTTP/1",
      "GET /%/a HTTP/1.",
      "GET /%/a HTTP/2.0",
      "GET /%/a HTTP/11.1",
      "GET /%/a http/1.1",
      "GET /%/a HTTPS/1.1",
      "GET /%/a HTTP/1.1 x",
      "GET /%/a b HTTP/1.1",
      "GET\t/%/a HTTP/1.1",
      "GET  HTTP/1.1",
      "get /%/a HTTP/1.1",
      "FOO /%/a HTTP/1.1",
      "GETX /%/a HTTP/1.1",
      " GET /%/a HTTP/1.1",
      "GET /%/a\u0000 HTTP/1.1",
      "\u0016\u0003\u0001",
      "PRI * HTTP/2.0",
      "HTTP/1.1 200 OK",
    ],
    (line) => get("", line),
  ),
);

refuses(
  "values with control characters",
  times(
    ["\u0000", "\u0001", "\u0008", "\u000b", "\u001f", "\u007f"],
    ["A: b%c", "A: %", "A%: b", "A: b%"],
  ).map(([sign, form]): Case => [form.replace("%", sign), get(`${form.replace("%", sign)}\r\n`)]),
);

refuses("heads that are too large", [
  ["a long path", get("", `GET /%/${"a".repeat(20_000)} HTTP/1.1`)],
  ["a long value", get(`A: ${"b".repeat(20_000)}\r\n`)],
  ["a long name", get(`${"A".repeat(20_000)}: b\r\n`)],
  ["many headers", get("Abcd: efgh\r\n".repeat(4000))],
  ["no end", `GET /%/a HTTP/1.1\r\nA: ${"b".repeat(100_000)}`],
]);

takes("one request", "POST a x", [
  ["a length", post("Content-Length: 1\r\n", "x")],
  ["zeros before a length", post("Content-Length: 0001\r\n", "x")],
  ["space around a length", post("Content-Length: \t 1 \t\r\n", "x")],
  ["chunks", chunked("1\r\nx\r\n0\r\n\r\n")],
  ["zeros before a size", chunked("0001\r\nx\r\n000\r\n\r\n")],
  ["an extension", chunked('1;a;b=c;d="e"\r\nx\r\n0;f\r\n\r\n')],
  ["trailers", chunked("1\r\nx\r\n0\r\nAuthorization: Bearer secret\r\nHost: evil\r\n\r\n")],
  ["capitals", post("TRANSFER-ENCODING: Chunked\r\n", "1\r\nx\r\n0\r\n\r\n")],
  ["a header of a like name", post("Transfer_Encoding: chunked\r\nContent-Length: 1\r\n", "x")],
  ["an offer of another protocol", post("Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n", "x")],
  ["line breaks before it", `\r\n\r\n${post("Content-Length: 1\r\n", "x")}`],
  ["a line break behind it", `${post("Content-Length: 1\r\n", "x")}\r\n`],
  ["a target with its host", post("Content-Length: 1\r\n", "x").replace("/%/a", "http://x/%/a")],
  ["many headers", post(`${"A: b\r\n".repeat(90)}Content-Length: 1\r\n`, "x")],
]);

takes("a request whose body looks like another", `POST a ${smuggled.replaceAll("%", "")}`.trim(), [
  ["by length", post(`Content-Length: ${smuggled.length - 1}\r\n`, smuggled.replace("%", ""))],
  [
    "in chunks",
    chunked(`${(smuggled.length - 1).toString(16)}\r\n${smuggled.replace("%", "")}\r\n0\r\n\r\n`),
  ],
]);

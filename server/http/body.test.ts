import { afterAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { jsonTextOf } from "../../text/json-text.ts";
import { type BodyLimits, BodyReader } from "./body.ts";
import { ApiError } from "./errors.ts";
import { parseJson } from "./json/parse.ts";
import { JsonReader } from "./json/reader.ts";
import { defaultJsonLimits } from "./limits.ts";

const limits: BodyLimits = {
  bodyBytesMax: 1000,
  bodiesBytesMax: 10_000,
  jsonDepthMax: 8,
  jsonKeysMax: 20,
  jsonNamesMax: 10,
  jsonItemsMax: 50,
  bodyGraceMs: 5000,
  bodyBytesPerSecondMin: 1,
};
const json = new JsonReader(new URL("./json/worker.ts", import.meta.url).href);
afterAll(() => json.close());

function readJsonBody(request: Request, given: BodyLimits): Promise<Record<string, unknown>> {
  return new BodyReader(given, json).readJson(request);
}

function post(
  body: string | Uint8Array<ArrayBuffer> | ReadableStream,
  headers: Record<string, string> = {},
): Request {
  return new Request("http://localhost/", {
    method: "POST",
    body,
    headers: { "content-type": "application/json", ...headers },
  });
}

async function refusalOf(
  request: Request,
  given: BodyLimits = limits,
  reader = new BodyReader(given, json),
): Promise<ApiError> {
  const outcome = await reader.readJson(request).catch((error: unknown) => error);
  expect(outcome).toBeInstanceOf(ApiError);
  return outcome as ApiError;
}

describe("a body is taken", () => {
  test("as a JSON object", async () => {
    expect(await readJsonBody(post('{"a":[1,{"b":"ü\\u00fc"}]}'), limits)).toEqual({ a: [1, { b: "üü" }] });
  });

  test("with a charset that is UTF-8, however it is written", async () => {
    for (const type of [
      "application/json; charset=utf-8",
      'Application/JSON;charset="UTF-8"',
      "application/json;x=y",
    ]) {
      expect(await readJsonBody(post("{}", { "content-type": type }), limits)).toEqual({});
    }
  });

  test("whatever JSON.parse takes, unless a rule of ours forbids it", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const text = JSON.stringify(value);
        if (text.includes("__proto__") || /\\u[dD]/.test(text)) return;
        expect(parseJson(text, defaultJsonLimits)).toEqual(JSON.parse(text));
      }),
      runs(500),
    );
  });

  test("when brackets, quotes and backslashes stand in its strings", () => {
    const value = { 'a"[{': ["\\", '\\"', "]}", ["{", "\\\\"]], b: '"a":1,"a":2', 'c\\"': { a: 1 }, a: 2 };
    expect(parseJson(JSON.stringify(value), { ...limits, jsonDepthMax: 4, jsonKeysMax: 5 })).toEqual(value);
  });
});

describe("a large body", () => {
  const large: BodyLimits = {
    ...limits,
    ...defaultJsonLimits,
    bodyBytesMax: 2 ** 21,
    bodiesBytesMax: 2 ** 22,
  };
  const padding = "x".repeat(300_000);

  test("comes out as a small one does, with the text of its members", async () => {
    const text = `{"pad": "${padding}", "tools": [{"a": 1.0, "2": 3, "1": 4}], "n": -0.0}`;
    const value = await readJsonBody(post(text), large);
    expect(value).toEqual(JSON.parse(text));
    expect(jsonTextOf(value.tools as object)).toBe('[{"a": 1.0, "2": 3, "1": 4}]');
  });

  test("has its long strings in their places", async () => {
    const texts = ["a", "b", "\u{1f600}"].map((text) => text.repeat(200_000));
    const value = { m: [{ c: texts[0], n: 1 }, [texts[1], "short", texts[2]], texts[0]], z: texts[1] };
    const text = JSON.stringify(value);
    const read = await Promise.all(
      [text, '{"z":""}'.padEnd(text.length), text].map((one) =>
        readJsonBody(post(one), { ...large, bodyBytesMax: 2 ** 23, bodiesBytesMax: 2 ** 25 }),
      ),
    );
    expect(read).toEqual([value, { z: "" }, value]);
    expect(jsonTextOf(read[2]!.m as object)).toBe(JSON.stringify(value.m));
  });

  test("is refused in the same words", async () => {
    for (const end of ['"a":1,"a":2}', '"a":tru}', `"a":${"[".repeat(129)}`]) {
      const small = await refusalOf(post(`{"pad": "", ${end}`), large);
      const refused = await refusalOf(post(`{"pad": "${padding}", ${end}`), large);
      expect([refused.status, refused.message, refused.detail.param]).toEqual([
        small.status,
        small.message,
        small.detail.param,
      ]);
    }
  });

  test("comes in pieces of any size, and several come at once, in any order", async () => {
    const pieces = (text: string): ReadableStream => {
      const bytes = new TextEncoder().encode(text);
      let at = 0;
      return new ReadableStream({
        pull(controller) {
          const end = at < 2000 ? at + 1 : bytes.length;
          controller.enqueue(bytes.slice(at, end));
          at = end;
          if (at >= bytes.length) controller.close();
        },
      });
    };
    const reader = new BodyReader(large, json);
    const texts = [0, 1, 2, 3].map((i) => `{"i": ${i}, "pad": "${padding}"}`);
    const values = await Promise.all(texts.map((text) => reader.readJson(post(pieces(text)))));
    expect(values).toEqual(texts.map((text) => JSON.parse(text)));
  });

  test("that memory has no room for beside the others is to be tried again", async () => {
    const reader = new BodyReader({ ...large, bodiesBytesMax: 450_000 }, json);
    const text = `{"pad": "${"x".repeat(250_000)}`;
    const begin = () => {
      const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
      const writer = writable.getWriter();
      const value = reader.readJson(post(readable));
      const write = (piece: string): Promise<void> => writer.write(new TextEncoder().encode(piece));
      return { value, write, leave: () => writer.abort() };
    };
    const open = [begin(), begin()];
    for (const { write } of open) {
      await write(text);
    }
    const error = await refusalOf(post(`${text}"}`), large, reader);
    expect([error.status, error.message]).toEqual([
      503,
      "the bodies of the requests that are being read have 450000 bytes together at most; try again",
    ]);
    expect(await reader.readJson(post('{"small":1}'))).toEqual({ small: 1 });
    for (const { leave, value } of open) {
      await leave();
      await expect(value).rejects.toThrow("the request body ended too early");
    }
    expect(await reader.readJson(post(`${text}"}`))).toEqual(JSON.parse(`${text}"}`));
  });
});

test("the text of members that are objects or arrays is remembered, escapes in keys and strings or not", () => {
  const text =
    '{"a": [1.0, "}]"], "t\\u006fols" : {"10": {"x": []}, "2": 1e5}, "s": "[", "n": null, "e": {}}';
  const value = parseJson(text, defaultJsonLimits) as Record<string, object>;
  expect(["a", "tools", "e"].map((name) => jsonTextOf(value[name]!))).toEqual([
    '[1.0, "}]"]',
    '{"10": {"x": []}, "2": 1e5}',
    "{}",
  ]);
  expect(jsonTextOf(value)).toBe(text);
});

test("half of a surrogate pair is U+FFFD, in the value and in the text that is remembered of it", () => {
  const text = String.raw`{"a":["\ud83dx\ud83d\ude00\ude00 \\ud800 \uD83D\uD83D\uDE00"],"b":{"\udc00":1.0}}`;
  const value = parseJson(text, defaultJsonLimits) as Record<string, object>;
  expect<unknown>(value).toEqual({ a: ["\ufffdx😀\ufffd \\ud800 \ufffd😀"], b: { "\ufffd": 1 } });
  expect(jsonTextOf(value.b!)).toBe(String.raw`{"\ufffd":1.0}`);
});

describe("a body is refused", () => {
  const refused: [what: string, body: string | Uint8Array<ArrayBuffer>, says: string][] = [
    ["that is empty", "", "not valid JSON"],
    ["that is an array", "[1]", "must be a JSON object"],
    ["that is null", "null", "must be a JSON object"],
    ["that ends early", '{"a":', "not valid JSON"],
    ["with NaN", '{"a":NaN}', "not valid JSON"],
    ["with a key twice", '{"a":1,"b":{"c":1,"\\u0063":2}}', 'the key "c" appears twice'],
    ["with __proto__", '{"a":{"__proto__":{}}}', "__proto__"],
    ["with an escaped __proto__", '{"\\u005f_proto__":{}}', "__proto__"],
    ["with a key twice, but for halves of surrogate pairs", '{"\\udc00":1,"\\ud800":1}', "appears twice"],
    ["nested too deep", `{"a":${"[".repeat(8)}${"]".repeat(8)}}`, "8 levels deep at most"],
    ["nested so deep that a parser would overflow", "[".repeat(900), "8 levels deep at most"],
    ["with too many keys", `[${'{"a":1},'.repeat(21)}0]`, "may hold 20 keys at most"],
    [
      "with too many names",
      JSON.stringify(Object.fromEntries("abcdefghijk".split("").map((key) => [key, 1]))),
      "may hold 10 different keys at most",
    ],
    [
      "with too many elements",
      `{"a":[${"1,".repeat(30)}1],"b":[[${"1,".repeat(30)}1]]}`,
      "arrays of 50 elements together at most",
    ],
    ["with a byte order mark", "\ufeff{}", "byte order mark"],
    ["in UTF-16", new Uint8Array([0xff, 0xfe, 0x7b, 0, 0x7d, 0]), "not valid UTF-8"],
    ["in UTF-16 without a mark", new Uint8Array([0x7b, 0, 0x7d, 0]), "not valid JSON"],
    ["in broken UTF-8", new Uint8Array([0x22, 0xc3, 0x28, 0x22]), "not valid UTF-8"],
  ];
  test.each(refused)("%s", async (_what, body, says) => {
    const error = await refusalOf(post(body));
    expect(error.status).toBe(400);
    expect(error.message).toContain(says);
  });

  test.each(["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", ""])(
    "of the type %p",
    async (type) => {
      expect((await refusalOf(post("{}", { "content-type": type }))).status).toBe(415);
    },
  );

  test("that is compressed", async () => {
    const type = { "content-type": "application/json" };
    const error = await refusalOf(post("{}", { ...type, "content-encoding": "gzip" }));
    expect([error.status, error.message]).toEqual([
      415,
      'the request body must come uncompressed, but the content-encoding is "gzip"',
    ]);
    expect(await readJsonBody(post("{}", { ...type, "content-encoding": "identity" }), limits)).toEqual({});
  });

  test("that is too large, at once when it says so", async () => {
    const error = await refusalOf(post(" ".repeat(1001)));
    expect([error.status, error.message]).toEqual([
      413,
      "the request body may have 1000 bytes at most, but has more",
    ]);
    const announced = await refusalOf(post("{}", { "content-length": "5000000" }));
    expect(announced.message).toContain("but has 5000000 bytes");
  });

  test("that does not come in time", async () => {
    const never = new ReadableStream({
      start: (controller) => controller.enqueue(new TextEncoder().encode("{")),
    });
    const error = await refusalOf(post(never), { ...limits, bodyGraceMs: 20 });
    expect([error.status, error.type]).toEqual([408, "timeout_error"]);
  });
});

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { jsonTextOf } from "../text/json-text.ts";
import { type BodyLimits, parseJson, readJsonBody } from "./body.ts";
import { ApiError } from "./errors.ts";

const limits: BodyLimits = { bodyBytesMax: 1000, jsonDepthMax: 8, jsonKeysMax: 20, bodyTimeoutMs: 5000 };

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

async function refusalOf(request: Request, given: BodyLimits = limits): Promise<ApiError> {
  const outcome = await readJsonBody(request, given).catch((error: unknown) => error);
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
        expect(parseJson(text, { jsonDepthMax: 8, jsonKeysMax: 10_000 })).toEqual(JSON.parse(text));
      }),
      runs(500),
    );
  });

  test("when brackets, quotes and backslashes stand in its strings", () => {
    const value = { 'a"[{': ["\\", '\\"', "]}", ["{", "\\\\"]], b: '"a":1,"a":2', 'c\\"': { a: 1 }, a: 2 };
    expect(parseJson(JSON.stringify(value), { jsonDepthMax: 4, jsonKeysMax: 5 })).toEqual(value);
  });
});

test("the text of members that are objects or arrays is remembered, escapes in keys and strings or not", () => {
  const text =
    '{"a": [1.0, "}]"], "t\\u006fols" : {"10": {"x": []}, "2": 1e5}, "s": "[", "n": null, "e": {}}';
  const value = parseJson(text, limits) as Record<string, object>;
  expect(["a", "tools", "e"].map((name) => jsonTextOf(value[name]!))).toEqual([
    '[1.0, "}]"]',
    '{"10": {"x": []}, "2": 1e5}',
    "{}",
  ]);
  expect(jsonTextOf(value)).toBe(text);
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
    ["with half of a surrogate pair", '{"a":["\\ud800x"]}', "a[0] holds half of a surrogate pair"],
    ["with half of a pair in a key", '{"\\udc00":1}', "a key holds half"],
    ["nested too deep", `{"a":${"[".repeat(8)}${"]".repeat(8)}}`, "8 levels deep at most"],
    ["nested so deep that a parser would overflow", "[".repeat(900), "8 levels deep at most"],
    ["with too many keys", `[${'{"a":1},'.repeat(21)}0]`, "may hold 20 keys at most"],
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
    const error = await refusalOf(post(never), { ...limits, bodyTimeoutMs: 20 });
    expect([error.status, error.type]).toEqual([408, "timeout_error"]);
  });
});

/** The splitter gives the requests of any JSON, however it is written and in whatever pieces it arrives. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { ApiError } from "../../http/errors.ts";
import { RequestSplitter } from "./request-splitter.ts";

function split(text: string, pieceBytes: number, bytesMax = 1e6) {
  const requests: string[] = [];
  const splitter = new RequestSplitter(bytesMax, (bytes) => requests.push(Buffer.from(bytes).toString()));
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += pieceBytes)
    splitter.write(Uint8Array.from(bytes.subarray(at, at + pieceBytes)));
  return { requests, rest: splitter.end() };
}

const key = fc.constantFrom("requests", "a", 'q"requests', "\\", "é\n", "]}");
const object = fc.dictionary(key, fc.jsonValue({ maxDepth: 3 }), { maxKeys: 3 });

test("requests and the rest are those of the whole JSON, and a request is one line", () => {
  const body = fc.record({ requests: fc.array(object, { maxLength: 4 }), after: object });
  const indent = fc.constantFrom(undefined, 1, "\t", "\r\n ".slice(1));
  fc.assert(
    fc.property(object, body, indent, fc.integer({ min: 1, max: 9 }), (before, body, indent, pieceBytes) => {
      const { requests: _, ...others } = before;
      const whole = { before: others, ...body };
      const text = JSON.stringify(whole, null, indent);
      const { requests, rest } = split(text, pieceBytes);
      const expected = JSON.parse(text) as typeof whole;
      expect(requests.map((text) => JSON.parse(text) as unknown)).toEqual(expected.requests);
      expect(requests.filter((text) => /[\r\n]/.test(text))).toEqual([]);
      expect(JSON.parse(rest)).toEqual({ ...expected, requests: body.requests.map(() => ({})) });
    }),
    runs(200),
  );
});

test("text that is not JSON never becomes JSON", () => {
  const whole = '{"requests": [{"a": [{}]}, {"b": "]}"}], "more": [1, {"c": []}]}';
  const letter = fc.constantFrom(...'{}[],:" \\0x\n');
  fc.assert(
    fc.property(fc.nat(whole.length - 1), letter, fc.boolean(), (at, given, isAdded) => {
      const text = whole.slice(0, at) + given + whole.slice(isAdded ? at : at + 1);
      let filled: object | null = null;
      try {
        const { requests, rest } = split(text, 5);
        const parsed = JSON.parse(rest) as { readonly requests?: object };
        const whole = { ...parsed, requests: requests.map((one) => JSON.parse(one) as unknown) };
        filled = parsed.requests === undefined ? null : whole;
      } catch (error) {
        if (!(error instanceof ApiError || error instanceof SyntaxError)) throw error;
      }
      if (filled !== null) expect(JSON.parse(text)).toEqual(filled);
    }),
    runs(500),
  );
});

test("a request, and what is beside the requests, has a limit", () => {
  const request = JSON.stringify({ custom_id: "x".repeat(100) });
  expect(split(`{"requests":[${request}]}`, 7, request.length).requests).toEqual([request]);
  expect(() => split(`{"requests":[{},${request}]}`, 7, request.length - 1)).toThrow(
    `requests[1] may have ${request.length - 1} bytes at most`,
  );
  expect(() => split(`{"a":"${"x".repeat(2 ** 20)}"}`, 4096)).toThrow("beside its requests");
});

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { FormParser, readForm } from "./multipart.ts";

const limits = { fileBytesMax: 1000, fieldBytesMax: 20, fieldsMax: 2 };

function parse(parts: readonly Uint8Array[]) {
  const file: Uint8Array[] = [];
  let name = "";
  const parser = new FormParser("\r\n--edge", limits, (field, filename) => {
    name = `${field} ${filename}`;
    return { write: (part) => file.push(part.slice()) };
  });
  for (const part of parts) parser.push(part);
  return { fields: Object.fromEntries(parser.end()), name, file: Buffer.concat(file).toString("latin1") };
}

function form(file: string, before = ""): Buffer {
  return Buffer.from(
    `${before}--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--edge\r\n` +
      `content-disposition: form-data; name="file"; filename="a \\"b\\".jsonl"\r\ncontent-type: x/y\r\n\r\n${file}\r\n--edge--\r\n`,
    "latin1",
  );
}

test("a form is read the same however its bytes are cut", () => {
  const text = fc.string({
    unit: fc.constantFrom("\r", "\n", "-", "e", "d", "\r\n--edg", "\xff"),
    maxLength: 40,
  });
  fc.assert(
    fc.property(text, fc.array(fc.nat({ max: 300 }), { maxLength: 20 }), (file, cuts) => {
      fc.pre(!`\r\n${file}\r\n`.includes("\r\n--edge"));
      const bytes = form(file, "ignored\r\n");
      const ends = [...cuts.filter((cut) => cut < bytes.length), bytes.length].sort((a, b) => a - b);
      const parts = ends.map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1]!, end));
      expect(parse(parts)).toEqual({ fields: { purpose: "batch" }, name: 'file a "b".jsonl', file });
    }),
    runs(200),
  );
});

test("what is too large, twice, cut off or no form is refused", () => {
  const field = (name: string, value = "x") =>
    `--edge\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
  const refused: readonly (readonly [string, string])[] = [
    [form("x".repeat(1001)).toString(), "a file may have 1000 bytes at most"],
    [`${field("a", "x".repeat(21))}--edge--`, "a form's field may have 20 bytes at most, and a has more"],
    [`${field("a")}${field("a")}--edge--`, "the form's field a is given twice"],
    [`${field("a")}${field("b")}${field("c")}--edge--`, "a form may have 2 fields at most"],
    [field("a"), "the form ends before its last boundary"],
    ["", "the form ends before its last boundary"],
    ["--edge\r\nx: y\r\n\r\n\r\n--edge--", "a part of the form has no name"],
    [`--edge\r\n${"x".repeat(9000)}`, "the head of a form's part may have 8192 bytes at most"],
    ["--edgexx", "a boundary of the form is followed by neither a line nor the end"],
  ];
  for (const [text, message] of refused) expect(() => parse([Buffer.from(text)])).toThrow(message);
});

test("of a file nothing is held back but what may be its end", () => {
  let written = 0;
  const parser = new FormParser("\r\n--edge", { ...limits, fileBytesMax: 2 ** 30 }, () => ({
    write: (part) => {
      written += part.length;
    },
  }));
  const [head, tail] = form("|").toString("latin1").split("|") as [string, string];
  parser.push(Buffer.from(head));
  const piece = Buffer.alloc(2 ** 16, "\r\n--edg");
  for (let pushed = 0; pushed < 2 ** 24; ) {
    parser.push(piece);
    pushed += piece.length;
    expect(pushed - written).toBeLessThan(16);
  }
  parser.push(Buffer.from(tail));
  parser.end();
  expect(written).toBe(2 ** 24);
});

test("a form that comes too slowly is refused", async () => {
  const pieces = new ReadableStream({ start: (controller) => controller.enqueue(form("x").subarray(0, 30)) });
  const request = new Request("http://localhost/", {
    method: "POST",
    body: pieces,
    headers: { "content-type": "multipart/form-data; boundary=edge" },
  });
  const pace = { bodyGraceMs: 20, bodyBytesPerSecondMin: 2 ** 20 };
  const error = await readForm(request, { ...limits, ...pace }, () => ({ write: () => {} })).catch((e) => e);
  expect(error).toMatchObject({ status: 408, type: "timeout_error" });
});

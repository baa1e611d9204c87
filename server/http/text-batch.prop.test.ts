import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { Outbox } from "./outbox.ts";
import { type BatchedStream, type StreamText, TextBatch } from "./text-batch.ts";

/** Socket that accepts `takes()` bytes of each write. */
function socketOf(takes: () => number) {
  const taken: Buffer[] = [];
  const write = (bytes: Uint8Array, from = 0, length = bytes.length): number => {
    const count = Math.min(takes(), length);
    taken.push(Buffer.from(bytes.subarray(from, from + count)));
    return count;
  };
  return { socket: { write } as unknown as Bun.Socket<unknown>, all: () => Buffer.concat(taken) };
}

function withoutChunks(sent: Buffer): { readonly text: string; readonly isWhole: boolean } {
  const parts: Buffer[] = [];
  for (let at = 0; at < sent.length; ) {
    const line = sent.indexOf("\r\n", at);
    const size = Number.parseInt(sent.toString("latin1", at, line), 16);
    const end = line + 2 + size;
    expect(sent.toString("latin1", end, end + 2)).toBe("\r\n");
    if (size === 0) return { text: Buffer.concat(parts).toString(), isWhole: end + 2 === sent.length };
    parts.push(sent.subarray(line + 2, end));
    at = end + 2;
  }
  return { text: Buffer.concat(parts).toString(), isWhole: false };
}

const piece = fc.oneof(
  fc.string({ unit: "binary", maxLength: 20 }),
  fc.constantFrom("", "é".repeat(30_000), "x".repeat(70_000), "中".repeat(100_000)),
);
const text = fc.oneof(piece, fc.array(piece, { maxLength: 4 }));
const write = fc.record({ stream: fc.nat({ max: 3 }), text, asBytes: fc.boolean(), flushes: fc.boolean() });

const stringOf = (text: StreamText): string =>
  typeof text === "string"
    ? text
    : text.map((piece) => (typeof piece === "string" ? piece : Buffer.from(piece).toString())).join("");

test("every stream gets its own texts, whole and in order, whatever its socket takes at once", () => {
  fc.assert(
    fc.property(fc.array(write, { maxLength: 30 }), fc.array(fc.nat({ max: 40_000 })), (writes, takes) => {
      let turn = 0;
      const batch = new TextBatch();
      const streams = [0, 1, 2, 3].map((index) => {
        const { socket, all } = socketOf(() =>
          takes.length === 0 ? 2 ** 30 : 1 + takes[turn++ % takes.length]!,
        );
        const outbox = new Outbox(
          socket,
          () => {},
          () => {},
        );
        const stream: BatchedStream = { outbox, isChunked: index !== 3, onCongested: () => {} };
        return { stream, all, expected: "", isEnded: false };
      });
      for (const { stream: index, text, asBytes, flushes } of writes) {
        const one = streams[index]!;
        const bytes = (piece: string) => Buffer.from(piece);
        // An unpaired surrogate becomes another character once it is encoded as bytes.
        const given = typeof text === "string" || !asBytes ? text : text.map(bytes);
        batch.write(one.stream, given);
        one.expected += Buffer.from(stringOf(text)).toString();
        if (flushes) batch.flush();
      }
      for (const one of streams) {
        const last = one.stream.isChunked ? "0\r\n\r\n" : "";
        batch.end(one.stream, Buffer.from(last), () => {
          one.isEnded = true;
        });
      }
      batch.flush();
      for (const { stream, all, expected, isEnded } of streams) {
        while (stream.outbox.waitingBytes > 0) stream.outbox.flush();
        expect(isEnded).toBe(true);
        if (!stream.isChunked) expect(all().toString()).toBe(expected);
        else expect(withoutChunks(all())).toEqual({ text: expected, isWhole: true });
      }
    }),
    runs(100),
  );
});

test("what a stream writes because it is congested comes behind the text that it was writing", () => {
  const batch = new TextBatch();
  let takes = 0;
  const { socket, all } = socketOf(() => takes);
  const outbox = new Outbox(
    socket,
    () => {},
    () => {},
  );
  const stream: BatchedStream = {
    outbox,
    isChunked: true,
    onCongested: () => {
      if (isCongested) return;
      isCongested = true;
      batch.write(stream, "last");
      batch.end(stream, Buffer.from("0\r\n\r\n"), () => {});
    },
  };
  let isCongested = false;
  const texts = ["a", "b", "c"].map((letter) => letter.repeat(60_000)); // the room holds two of them
  for (const text of texts) batch.write(stream, text);
  batch.flush();
  takes = 2 ** 30;
  outbox.flush();
  expect(withoutChunks(all())).toEqual({ text: `${texts.join("")}last`, isWhole: true });
});

/** Reads calls from an answer in pieces. */
import type { CallableFunction } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { CallReader, joined, type ReadPart } from "../../text/formats/call-reader.ts";

/** Parsed parts of an answer that arrives in these pieces. */
export function readCalls(
  form: CallForm,
  functions: readonly CallableFunction[],
  pieces: readonly string[],
): ReadPart[] {
  const reader = new CallReader(form, functions);
  return joined([...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()]);
}

/** Splits the text once at every position, into single units, and by `sizes`. */
export function cutsOf(text: string, sizes: readonly number[]): string[][] {
  const pieces: string[] = [];
  for (let from = 0, i = 0; from < text.length; i++) {
    const size = sizes[i % sizes.length]!;
    pieces.push(text.slice(from, from + size));
    from += size;
  }
  const once = Array.from({ length: text.length + 1 }, (_, at) => [text.slice(0, at), text.slice(at)]);
  return [...once, [...text], pieces];
}

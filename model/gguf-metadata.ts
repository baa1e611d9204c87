/** Metadata entries of a GGUF file, checked for type and range. Every error names file, key and value. */
import type { GgufFile, GgufValue } from "./gguf-file.ts";
import { show } from "./json.ts";
import { ModelError } from "./model-error.ts";

/** Typed access to metadata. Refuses an absent entry if there is no fallback. */
export class Metadata {
  readonly file: string;
  readonly #entries: ReadonlyMap<string, GgufValue>;

  constructor({ file, metadata }: Pick<GgufFile, "file" | "metadata">) {
    this.file = file;
    this.#entries = metadata;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  isArray(key: string): boolean {
    return this.#entries.get(key)?.type === "array";
  }

  refuse(key: string, reason: string): never {
    const entry = this.#entries.get(key);
    const value = entry === undefined ? "missing" : shown(entry);
    throw new ModelError(this.file, key, `${value}: ${reason}`);
  }

  integer(key: string, min: number, max: number, fallback?: number): number {
    const entry = this.#entries.get(key);
    if (entry === undefined && fallback !== undefined) return fallback;
    const value = entry !== undefined && /^[ui]\d/.test(entry.type) ? entry.value : null;
    return typeof value === "number" && value >= min && value <= max
      ? value
      : this.refuse(key, `wanted: a whole number from ${min} to ${max}`);
  }

  number(key: string, min: number, max: number, fallback?: number): number {
    const entry = this.#entries.get(key);
    if (entry === undefined && fallback !== undefined) return fallback;
    const value = entry?.type === "f32" || entry?.type === "f64" ? entry.value : null;
    return value !== null && value >= min && value <= max
      ? value
      : this.refuse(key, `wanted: a real number from ${min} to ${max}`);
  }

  text(key: string, fallback?: string): string {
    const entry = this.#entries.get(key);
    if (entry === undefined && fallback !== undefined) return fallback;
    return entry?.type === "string" ? entry.value : this.refuse(key, "wanted: a text");
  }

  boolean(key: string, fallback?: boolean): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined && fallback !== undefined) return fallback;
    return entry?.type === "bool" ? entry.value : this.refuse(key, "wanted: true or false");
  }

  texts(key: string): readonly string[] {
    const entry = this.#entries.get(key);
    return entry?.type === "array" && entry.of === "string"
      ? entry.value
      : this.refuse(key, "wanted: an array of texts");
  }

  /** An array of `count` whole numbers; null if absent. */
  integers(key: string, count: number): ArrayLike<number> | null {
    return this.#numbers(key, count, /^[ui]\d/, "whole");
  }

  /** An array of `count` booleans, or of zeros and ones. */
  flags(key: string, count: number): boolean[] {
    return Array.from(
      this.#numbers(key, count, /^bool$|^[ui]\d/, "truth values or whole")!,
      (flag) => flag !== 0,
    );
  }

  /** An array of `count` real numbers; null if absent. */
  numbers(key: string, count: number): ArrayLike<number> | null {
    return this.#numbers(key, count, /^f\d/, "real");
  }

  /** An array of whole numbers of any length; empty if absent. */
  listed(key: string): readonly number[] {
    const entry = this.#entries.get(key);
    if (entry === undefined) return [];
    const isGood = entry.type === "array" && entry.of !== "string" && /^[ui]\d/.test(entry.of);
    return isGood ? Array.from(entry.value, Number) : this.refuse(key, "wanted: an array of whole numbers");
  }

  /** An array of bytes of any length. */
  bytes(key: string): Uint8Array {
    const entry = this.#entries.get(key);
    const isGood = entry?.type === "array" && (entry.of === "u8" || entry.of === "i8");
    return isGood ? Uint8Array.from(entry.value) : this.refuse(key, "wanted: an array of bytes");
  }

  #numbers(key: string, count: number, type: RegExp, kind: string): ArrayLike<number> | null {
    const entry = this.#entries.get(key);
    if (entry === undefined) return null;
    const isGood = entry.type === "array" && entry.of !== "string" && type.test(entry.of);
    return isGood && entry.value.length === count
      ? entry.value
      : this.refuse(key, `wanted: an array of ${count} ${kind} numbers`);
  }
}

function shown(entry: GgufValue): string {
  if (entry.type === "array") return `array of ${entry.value.length} ${entry.of}`;
  return entry.type === "string" ? show(entry.value) : String(entry.value);
}

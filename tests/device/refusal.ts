import { expect } from "bun:test";
import { NativeError, type NativeStatus } from "../../gpu/native.ts";

/** Expects that the engines' library refuses a call, with this status and part of its sentence. */
export function expectRefusal(call: () => unknown, status: NativeStatus, sentence: string): void {
  try {
    call();
  } catch (error) {
    expect(error).toBeInstanceOf(NativeError);
    expect((error as NativeError).status).toBe(status);
    expect((error as NativeError).message).toContain(sentence);
    return;
  }
  throw new Error(`nothing was refused, expected: ${sentence}`);
}

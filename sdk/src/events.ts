import { type FailedValue, ServerError } from "./errors.ts";

/** Event of a program's stream: docs/reference/programs.md. */
export type ProgramEvent =
  | { readonly type: "program.started"; readonly id: string }
  | { readonly type: "call.ready" | "call.started" | "call.ended"; readonly call: string }
  | { readonly type: "call.failed"; readonly call: string; readonly error: FailedValue }
  | { readonly type: "variable.delta"; readonly variable: string; readonly text: string }
  | { readonly type: "variable.ready"; readonly variable: string; readonly value: string | readonly string[] }
  | { readonly type: "variable.failed"; readonly variable: string; readonly error: FailedValue }
  | { readonly type: "program.done"; readonly id: string };

/**
 * Yields server-sent events of a response to its end. Rejects with ServerError if the server reports that it
 * cannot continue.
 */
export async function* eventsOf(response: Response): AsyncGenerator<ProgramEvent, void, void> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const frames = text.split("\n\n");
      text = frames.pop()!;
      for (const frame of frames) {
        const event = parsed(frame);
        if (event !== null) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

/** Event of an SSE frame; null for a comment. */
function parsed(frame: string): ProgramEvent | null {
  const line = frame.split("\n").find((one) => one.startsWith("data: "));
  if (line === undefined) return null;
  const data = JSON.parse(line.slice("data: ".length));
  if (!("error" in data) || "type" in data) return data as ProgramEvent;
  const { message, code, param } = data.error;
  throw new ServerError(0, code, message, param);
}

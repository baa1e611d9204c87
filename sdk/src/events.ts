import { type FailedValue, ServerError } from "./errors.ts";

/** What a program's stream tells: docs/reference/programs.md. */
export type ProgramEvent =
  | { readonly type: "program.started"; readonly id: string }
  | { readonly type: "call.ready" | "call.started" | "call.ended"; readonly call: string }
  | { readonly type: "call.failed"; readonly call: string; readonly error: FailedValue }
  | { readonly type: "variable.delta"; readonly variable: string; readonly text: string }
  | { readonly type: "variable.ready"; readonly variable: string; readonly value: string | readonly string[] }
  | { readonly type: "variable.failed"; readonly variable: string; readonly error: FailedValue }
  | { readonly type: "program.done"; readonly id: string };

/** Server-sent events of a response, to their end. Rejects with ServerError when the server says that it cannot go on. */
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

/** null: a comment. */
function parsed(frame: string): ProgramEvent | null {
  const line = frame.split("\n").find((one) => one.startsWith("data: "));
  if (line === undefined) return null;
  const data = JSON.parse(line.slice("data: ".length));
  if (!("error" in data) || "type" in data) return data as ProgramEvent;
  const { message, code, param } = data.error;
  throw new ServerError(0, code, message, param);
}

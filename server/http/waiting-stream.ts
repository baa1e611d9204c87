import type { Outlet, ReplyTarget, TextSource } from "./reply.ts";
import { sseFraming } from "./stream.ts";

/**
 * Event stream that begins before the answer's own. Its comments report progress while the request waits for
 * its model. The answer's stream then continues on the same connection.
 */
export class WaitingStream implements TextSource {
  /** Destination for the answer. */
  readonly reply: ReplyTarget;
  readonly #outer: ReplyTarget;
  #answer: TextSource | null = null;
  #outlet: Outlet | null = null;
  #text = "";
  /** Runs once the head is sent. */
  #next: ((outlet: Outlet) => void) | null = null;

  constructor(outer: ReplyTarget) {
    this.#outer = outer;
    this.reply = {
      signal: outer.signal,
      streamFrom: (source) => {
        this.#answer = source;
      },
      whenSent: (tell) => outer.whenSent(tell),
    };
  }

  /** Hands the answer's stream to the connection unchanged. To be called only before anything is sent. */
  passOn(): void {
    if (this.#answer !== null) this.#outer.streamFrom(this.#answer);
  }

  /** The response. Its head is sent at once. */
  response(): Response {
    this.#outer.streamFrom(this);
    return new Response(null, {
      headers: {
        "content-type": sseFraming.contentType,
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
      },
    });
  }

  /** Writes a comment of one line, which clients skip. */
  comment(text: string): void {
    this.#write(`: ${text}\n\n`);
  }

  /** Continues with the answer's stream. Returns false if the answer is not a stream. */
  continue(): boolean {
    const answer = this.#answer;
    if (answer !== null) this.#whenBegun((outlet) => answer.begin(outlet));
    return answer !== null;
  }

  /** Ends the stream with this text. */
  end(text: string): void {
    this.#write(text);
    this.#whenBegun((outlet) => outlet.end());
  }

  begin(outlet: Outlet): void {
    this.#outlet = outlet;
    outlet.write(sseFraming.opening + this.#text);
    this.#next?.(outlet);
  }

  onCongested(): void {
    this.#answer?.onCongested();
  }

  #write(text: string): void {
    if (this.#outlet === null) this.#text += text;
    else this.#outlet.write(text);
  }

  #whenBegun(act: (outlet: Outlet) => void): void {
    if (this.#outlet === null) this.#next = act;
    else act(this.#outlet);
  }
}

import { expect } from "bun:test";

/** Parses the events of a stream in which each frame names its event's type. */
export function namedEventsIn<Event extends { readonly type: string }>(text: string): Event[] {
  return text
    .split("\n\n")
    .filter((frame) => frame !== "")
    .map((frame) => {
      const [name, data] = frame.split("\n") as [string, string];
      const event = JSON.parse(data.slice("data: ".length)) as Event;
      expect(name).toBe(`event: ${event.type}`);
      return event;
    });
}

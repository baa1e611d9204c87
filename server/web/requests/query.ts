import { signal } from "@preact/signals";

export const orders = {
  created: "newest first",
  duration: "longest first",
  first_token: "latest first token",
} as const;

/** Sort order of the request list, and the minimum duration of listed requests. */
export const order = signal<keyof typeof orders>("created");
export const slowMs = signal(0);

/** Parameters of the list, as for `GET /v1/requests`. */
export function requestsQuery(): string {
  return `sort=${order.value}&slow=${slowMs.value}&limit=100`;
}

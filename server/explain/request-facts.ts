/** Requests on the wire: what the page and `bunting why` read. */

/** A request, as `GET /v1/requests` tells it. */
export interface RequestFacts {
  readonly id: string;
  readonly model: string;
  readonly route: string;
  readonly status: "running" | "answered" | "failed" | "cancelled";
  readonly error: string | null;
  /** Unix seconds. */
  readonly created: number;
  readonly total_ms: number;
  readonly first_token_ms: number | null;
  /** Milliseconds by cause. */
  readonly causes: Readonly<Record<string, number>>;
  /** The same up to the first token; null: there is none. */
  readonly first_token_causes: Readonly<Record<string, number>> | null;
  readonly tokens: {
    readonly prompt: number;
    readonly found: { readonly memory: number; readonly host: number; readonly disk: number };
    readonly computed: number;
    readonly recomputed: number;
    readonly generated: number;
    readonly drafts: { readonly checked: number; readonly right: number };
  };
  readonly late: { readonly tokens: number; readonly ms: number };
  readonly preemptions: number;
  readonly engines: readonly number[];
  readonly choices: number;
  readonly behind: Blocker | null;
  readonly same_prefix_of: Blocker | null;
}

/** Request that another one waited for. */
export interface Blocker {
  /** Null: of another key. */
  readonly request: string | null;
  readonly ms: number;
}

import type { VNode } from "preact";
import { server } from "./store.ts";

/** Note in place of a view that needs the operator's key. */
export function NeedsOperator(): VNode | null {
  if (server.isAdmin.value !== false) return null;
  return (
    <p class="note">
      This view shows the requests of all keys, so it needs the operator's key (--admin-key).
    </p>
  );
}

import type { Failure } from "../../scheduler/program/graph.ts";
import type { Value } from "../../scheduler/program/spec.ts";
import type { Usage } from "../answer/events.ts";

/**
 * Events of a program in order, without a wire format. Only variables named by the client have events;
 * internal ones of a map, reduce, choose or repeat show only through their calls.
 */
export type ProgramEvent =
  | { readonly kind: "call.ready" | "call.started" | "call.ended"; readonly call: string }
  | { readonly kind: "call.failed"; readonly call: string; readonly failure: Failure }
  /** Final text of a value; only for outputs without transforms. */
  | { readonly kind: "variable.delta"; readonly variable: string; readonly text: string }
  | { readonly kind: "variable.ready"; readonly variable: string; readonly value: Value }
  | {
      readonly kind: "variable.failed";
      readonly variable: string;
      readonly failure: Failure;
      /** Calls and variables from the failure's origin to this variable. */
      readonly path: readonly string[];
    }
  /** Last event: all awaited variables have settled, or the program was ended. */
  | { readonly kind: "program.done"; readonly usage: Usage };

import type { Failure } from "../../scheduler/program/graph.ts";
import type { Value } from "../../scheduler/program/spec.ts";
import type { Usage } from "../answer/events.ts";

/**
 * What happens in a program, in the order in which it happens, without a wire format. Variables are those that the client
 * named; what a map, reduce, choice or repetition makes for itself is told by its calls alone.
 */
export type ProgramEvent =
  | { readonly kind: "call.ready" | "call.started" | "call.ended"; readonly call: string }
  | { readonly kind: "call.failed"; readonly call: string; readonly failure: Failure }
  /** Text that is certain to be part of the value. Only of what is written without transforms. */
  | { readonly kind: "variable.delta"; readonly variable: string; readonly text: string }
  | { readonly kind: "variable.ready"; readonly variable: string; readonly value: Value }
  | {
      readonly kind: "variable.failed";
      readonly variable: string;
      readonly failure: Failure;
      /** Calls and variables from where it began to here. */
      readonly path: readonly string[];
    }
  /** Nothing more happens: all that is awaited has settled, or the program was ended. */
  | { readonly kind: "program.done"; readonly usage: Usage };

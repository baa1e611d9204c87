import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

// Ajv divides in floating point: 8504.37 is a multiple of 0.01 to nine places only.
const options = { strict: false, allErrors: false, logger: false, multipleOfPrecision: 9 } as const;
const recent = addFormats.default(new Ajv2020(options));
const older = addFormats.default(new Ajv(options));

/** Whether a JSON Schema allows a value, as Ajv sees it: of draft 7 where it says so, else of 2020-12. */
export function allows(schema: unknown, value: unknown): boolean {
  const isOlder =
    typeof schema === "object" &&
    schema !== null &&
    "$schema" in schema &&
    String(schema.$schema).includes("-07");
  return (isOlder ? older : recent).validate(schema as object, value);
}

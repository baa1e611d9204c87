import packageJson from "../package.json" with { type: "json" };

/** Of this program, as `--version`, /version and /metrics tell it. */
export const version: string = packageJson.version;

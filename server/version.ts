import packageJson from "../package.json" with { type: "json" };

/** Version of this program, as in `--version`, /version and /metrics. */
export const version: string = packageJson.version;

/** Listening on the configured address, from before there is a model to answer with. */

import { type Config, ConfigError } from "../config.ts";
import { asApiError, errorResponse, type Refuse } from "./errors.ts";
import { pathOf, requestIdOf } from "./head.ts";
import { Lifecycle } from "./lifecycle.ts";
import { pageFile } from "./page.ts";
import { HttpServer } from "./server.ts";
import { limitUnsent } from "./unsent.ts";

type Address = Pick<Config, "host" | "port"> & Partial<Pick<Config, "connectionsPerAddress">>;

/**
 * Listens before the model is loaded, so that a port in use shows at once and clients receive a refusal that
 * says so. `descriptor`: the address's socket, from the server that had it. Throws ConfigError.
 */
export function listen(
  { host, port, connectionsPerAddress = 0 }: Address,
  lifecycle: Lifecycle,
  refuse: Refuse,
  descriptor?: number,
): HttpServer {
  const whileLoading = async (request: Request): Promise<Response> => {
    const path = pathOf(request);
    if (path === "/health") return Response.json({ status: "ok", ...loadingOf(lifecycle) });
    // The page tries by itself until the model is loaded.
    const file = /^\/(?:page\/(.+))?$/.exec(path);
    const page = file === null ? null : await pageFile(file[1] ?? "index.html");
    if (page !== null) return page;
    try {
      lifecycle.expectReady();
    } catch (error) {
      const requestId = requestIdOf(request.headers);
      return refuse(path, asApiError(error, requestId), requestId);
    }
    return new Response(null, { status: 503 });
  };
  try {
    const server = new HttpServer(host, port, whileLoading, {
      ...(connectionsPerAddress > 0 ? { connectionsPerAddress } : {}),
      ...(descriptor === undefined ? {} : { descriptor }),
    });
    limitUnsent(server.port);
    return server;
  } catch (error) {
    throw new ConfigError(refusal(error as NodeJS.ErrnoException, host, port));
  }
}

/** Progress of loading, for `GET /health`. */
function loadingOf({ state, loading }: Pick<Lifecycle, "state" | "loading">): object {
  return state === "loading" && loading !== null ? { loading } : {};
}

/** Reason why the server cannot listen on the address, or null. */
export async function listenProblem(address: Address): Promise<string | null> {
  try {
    await listen(address, new Lifecycle("loading"), (_path, error) => errorResponse(error)).kill();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

function refusal(error: NodeJS.ErrnoException, host: string, port: number): string {
  switch (error.code) {
    case "EADDRINUSE":
      return `Port ${port} on ${host} is in use; choose another with --port.`;
    case "EACCES":
      return `Port ${port} needs more rights than this process has; choose one above 1023 with --port.`;
    case "EADDRNOTAVAIL":
      return `${host} is not an address of this machine.`;
    default:
      return `Cannot listen on ${host}:${port}: ${error.message}`;
  }
}

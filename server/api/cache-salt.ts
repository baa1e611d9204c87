/** The salt under which prefixes of a tenant's prompts are cached: prompts share prefixes under equal salts only. */
export type CacheSaltFor = (tenant: string, requested: string) => string;

/** What one tenant has sent must not show in another's `cached_tokens`, nor in how soon its answers begin. Without keys there
 *  is one tenant, "". */
export function cacheSalts({ sharePrefixes }: { readonly sharePrefixes: boolean }): CacheSaltFor {
  return (tenant, requested) => (sharePrefixes || tenant === "" ? requested : `${tenant}:${requested}`);
}

/** Cache salt of a tenant's prompts: prompts share cached prefixes only under equal salts. */
export type CacheSaltFor = (tenant: string, requested: string) => string;

/**
 * Isolates the prefix caches of tenants: neither `cached_tokens` nor the time to first token reveals another
 * tenant's prompts. Without API keys there is one tenant, "".
 */
export function cacheSalts({ sharePrefixes }: { readonly sharePrefixes: boolean }): CacheSaltFor {
  return (tenant, requested) => (sharePrefixes || tenant === "" ? requested : `${tenant}:${requested}`);
}

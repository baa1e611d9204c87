#!/bin/sh
# An offline job with curl: a file of requests, a batch of them, and its results.
set -eu
url=${BUNTING_URL:-http://127.0.0.1:8000}
key="authorization: Bearer ${BUNTING_API_KEY:-none}"
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

# Prints the text of a field of the JSON on standard input.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

# Sends a request and prints the id of what it made, or ends with the server's refusal.
made() {
  answer=$(curl -sS -H "$key" "$@")
  id=$(echo "$answer" | sed 's/,.*//' | field id)
  [ -n "$id" ] || { echo "$answer" >&2; exit 1; }
  echo "$id"
}

for word in brave lighthouse kettle; do
  body="{\"messages\": [{\"role\": \"user\", \"content\": \"Define $word.\"}], \"temperature\": 0}"
  echo "{\"custom_id\": \"$word\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": $body}"
done >"$folder/in.jsonl"

file=$(made "$url/v1/files" -F purpose=batch -F file=@"$folder/in.jsonl")
batch=$(made "$url/v1/batches" -H 'content-type: application/json' -d "{
  \"input_file_id\": \"$file\", \"endpoint\": \"/v1/chat/completions\", \"completion_window\": \"24h\"
}")
until state=$(curl -sS -H "$key" "$url/v1/batches/$batch") && echo "$state" | grep -Eq '"status":"(completed|failed|expired|cancelled)"'; do
  sleep 0.2
done
curl -sS -H "$key" "$url/v1/files/$(echo "$state" | field output_file_id)/content"

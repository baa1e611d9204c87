#!/bin/sh
# An offline job with curl: a file of requests, a batch of them, and its results.
set -eu
url=${BUNTING_URL:-http://127.0.0.1:8000}
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT

# Prints the text of a field of the JSON on standard input.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }

for word in brave lighthouse kettle; do
  body="{\"messages\": [{\"role\": \"user\", \"content\": \"Define $word.\"}], \"temperature\": 0}"
  echo "{\"custom_id\": \"$word\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": $body}"
done >"$folder/in.jsonl"

file=$(curl -sS "$url/v1/files" -F purpose=batch -F file=@"$folder/in.jsonl" | sed 's/,.*//' | field id)
batch=$(curl -sS "$url/v1/batches" -H 'content-type: application/json' -d "{
  \"input_file_id\": \"$file\", \"endpoint\": \"/v1/chat/completions\", \"completion_window\": \"24h\"
}" | sed 's/,.*//' | field id)
until state=$(curl -sS "$url/v1/batches/$batch") && echo "$state" | grep -Eq '"status":"(completed|failed|expired|cancelled)"'; do
  sleep 0.2
done
curl -sS "$url/v1/files/$(echo "$state" | field output_file_id)/content"

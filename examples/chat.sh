#!/bin/sh
# A chat with curl: the answer whole, then as a stream of events.
url=${BUNTING_URL:-http://127.0.0.1:8000}
key="authorization: Bearer ${BUNTING_API_KEY:-none}"
question='"messages": [{"role": "user", "content": "What is 47 plus 38?"}], "temperature": 0'
curl -sS "$url/v1/chat/completions" -H "$key" -H 'content-type: application/json' -d "{$question}"
echo
curl -sSN "$url/v1/chat/completions" -H "$key" -H 'content-type: application/json' -d "{$question, \"stream\": true}"

#!/bin/sh
# A chain of two calls with curl; prints the program's events as they arrive.
curl -sSN "${BUNTING_URL:-http://127.0.0.1:8000}/v1/programs" -H 'content-type: application/json' \
  -H "authorization: Bearer ${BUNTING_API_KEY:-none}" -d '{
  "stream": true,
  "calls": [
    {"messages": [{"role": "user", "content": "List three fruits."}], "output": "list", "temperature": 0},
    {"messages": [{"role": "user", "content": "Join these items with commas:\n{{list}}"}], "output": "joined", "temperature": 0}
  ]
}'

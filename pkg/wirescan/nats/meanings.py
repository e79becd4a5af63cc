"""What the columns of NATS's formats mean."""

# Format -> column or place -> meaning.
MEANINGS = {
    "nats.messages": {
        "kind": "the operation, such as PUB or MSG: see `Kind`",
        "count": "messages after which an UNSUB ends the subscription, 0 in other operations",
        "status": "number in the first line of the headers, 0 for none",
        "subject": "the subject, null for an operation without one",
        "sid": "id of the subscription on its connection, or null",
        "reply": "subject that an answer is sent to, or null",
        "queue": "queue group of a SUB, or null",
        "payload": "the published bytes, the JSON of INFO or CONNECT, or the text of -ERR",
        "headers": "the header block; exports have its lines as pairs of key and value",
        "header_count": "number of header lines, 65535 if there are more",
    },
    "nats.exchanges": {
        "status": "number in the first line of the reply's headers, such as 503; 0 for none",
        "subject": "the subject of the request",
        "reply": "the subject of the reply",
    },
    "nats.headers": {
        "key": "the name of the header line",
        "value": "the value of the header line, without the blanks around it",
    },
}

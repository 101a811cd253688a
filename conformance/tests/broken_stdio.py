"""A proxy of a healthy stdio server with one fault: `python broken_stdio.py FAULT`."""

import json
import subprocess
import sys
import threading
import time

FAULT = sys.argv[1]


def main():
    child = subprocess.Popen(
        [sys.executable, "-m", "a2m_server", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    threading.Thread(target=forward, args=(child,), daemon=True).start()
    if FAULT == "greets":
        say("Welcome to a memory server")
    if FAULT == "asks":
        say('{"jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {}}')
    for line in child.stdout:
        answer(line.decode().rstrip("\n"))
    if FAULT == "stays":
        time.sleep(60)
    sys.exit(3 if FAULT == "ends badly" else 0)


def forward(child):
    for line in sys.stdin.buffer:
        message = parse(line)
        if (
            FAULT == "answers notifications"
            and "id" not in message
            and message.get("method") == "memory/no-such"
        ):
            say('{"jsonrpc": "2.0", "id": null, "result": {}}')
        if (
            FAULT == "skips bad lines"
            and not message
            and b"[" not in line
            and line.strip() not in (b"5", b"null")
        ):
            say('{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "bad"}}')
            continue
        params = message.get("params") if isinstance(message.get("params"), dict) else {}
        if FAULT == "shows another owner" and message.get("method") == "memory/recall":
            params.pop("owner", None)
        if FAULT == "forgets of another owner" and message.get("method") == "memory/forget":
            params.pop("owner", None)
        if FAULT == "takes kinds for all" and message.get("method") == "memory/events/subscribe":
            params.pop("kinds", None)
        if message and FAULT in OWNER_FAULTS:
            line = json.dumps(message).encode() + b"\n"
        child.stdin.write(line)
        child.stdin.flush()
    child.stdin.close()


def answer(line):
    message = parse(line)
    if FAULT == "pushes nothing" and "method" in message:
        return
    say(line)


def parse(line):
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


OWNER_FAULTS = ("shows another owner", "forgets of another owner", "takes kinds for all")

main()

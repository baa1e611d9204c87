"""A plugin of pytest for llama.cpp's tests of its server: where they start theirs they get ours, with what of their options it has."""

import json
import os
import subprocess
import urllib.parse

import utils

SERVER = os.environ["BUNTING_SERVER"]
"""Runs a scripted server: a command, as JSON."""

started: dict[str, tuple[subprocess.Popen, str]] = {}
"""By options: tests that ask for the same ones share a server."""


def options_of(server: utils.ServerProcess) -> dict:
    options = {}
    if server.n_ctx and server.kv_unified:
        options["contextMax"] = server.n_ctx
    elif server.n_ctx:
        options["contextMax"] = server.n_ctx // (server.n_slots or 1)
    if server.api_key:
        options["key"] = server.api_key
    if server.cors_origins:
        options["corsOrigins"] = [server.cors_origins]
    if server.chat_template_file:
        options["template"] = os.path.abspath(server.chat_template_file)
    return options


def start(server: utils.ServerProcess, timeout_seconds: int = 0) -> None:
    options = json.dumps(options_of(server))
    if options not in started:
        command = [*json.loads(SERVER), options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started[options] = (process, process.stdout.readline().strip())
    server.server_port = urllib.parse.urlsplit(started[options][1]).port


def pytest_unconfigure() -> None:
    for process, _ in started.values():
        process.communicate()


utils.ServerProcess.start = start
utils.ServerProcess.stop = lambda server: None
utils.ServerPreset.load_all = staticmethod(lambda: None)

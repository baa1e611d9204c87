"""Pytest plugin for llama.cpp's server tests: starts our server in place of theirs, with the options that ours supports."""

import json
import os
import subprocess
import urllib.parse

import utils

SERVER = os.environ["BUNTING_SERVER"]
"""Command of the scripted server, as JSON."""

started: dict[str, tuple[subprocess.Popen, str]] = {}
"""Servers by options: tests with the same options share one."""


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

"""Rendering by transformers: its own template environment, and for chats its own entry point."""

import copy

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template


def rendered(template: str, variables: dict) -> dict:
    """Renders a template; copies the variables, since some of Python's filters change lists.

    Returns {"text"} or {"error": class of the exception}, with "says" for messages of the template."""
    try:
        return {"text": _compile_jinja_template(template).render(**copy.deepcopy(variables))}
    except Exception as error:  # noqa: BLE001: any class is a result
        kind = type(error).__name__
        says = {"says": str(error)} if kind in ("TemplateError", "UndefinedError", "SecurityError") else {}
        return {"error": kind, **says}


def chat(template: str, messages: list, tools: list | None, add_generation_prompt: bool, variables: dict) -> str | None:
    """Returns the prompt's text; None if the template refuses or fails."""
    try:
        texts, _ = render_jinja_template(
            conversations=[messages],
            tools=tools,
            chat_template=template,
            add_generation_prompt=add_generation_prompt,
            **variables,
        )
    except Exception:  # noqa: BLE001
        return None
    return texts[0]

"""What transformers makes of a template: its own environment, and for chats its own entry."""

import copy

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template


def rendered(template: str, variables: dict) -> dict:
    """The variables are copied: some filters of Python's change lists.

    {"text"} or {"error": class of the exception}, and "says" where the words are the template's."""
    try:
        return {"text": _compile_jinja_template(template).render(**copy.deepcopy(variables))}
    except Exception as error:  # noqa: BLE001: any class is a result
        kind = type(error).__name__
        says = {"says": str(error)} if kind in ("TemplateError", "UndefinedError", "SecurityError") else {}
        return {"error": kind, **says}


def chat(template: str, messages: list, tools: list | None, add_generation_prompt: bool, variables: dict) -> str | None:
    """The prompt's text; None when the template refuses or fails."""
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

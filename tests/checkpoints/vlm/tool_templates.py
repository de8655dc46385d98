"""Chat templates that know tools, in the three forms in which published models write calls."""

from __future__ import annotations

PARTS = (
    "{% macro said(parts) %}{% for part in parts %}{% if part['type'] == 'image' %}<|vision_start|><|image_pad|>"
    "<|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endmacro %}"
)
HERMES = PARTS + (
    "{% if tools %}<|im_start|>system\n{% if messages[0]['role'] == 'system' %}{{ said(messages[0]['content']) }}\n"
    "{% endif %}<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools><|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'tool' %}<|im_start|>user\n<tool_response>\n"
    "{{ said(message['content']) }}\n</tool_response><|im_end|>\n"
    "{% elif not (tools and loop.first and message['role'] == 'system') %}<|im_start|>{{ message['role'] }}"
    "{% if message['content'] or not message['tool_calls'] %}{{ '\n' + said(message['content']) }}{% endif %}"
    "{% for call in message['tool_calls'] or [] %}{{ '\n<tool_call>\n{\"name\": \"' + call['function']['name'] + "
    "'\", \"arguments\": ' }}{{ call['function']['arguments'] | tojson }}{{ '}\n</tool_call>' }}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MISTRAL = PARTS + (
    "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% if tools and message == users[-1] %}[AVAILABLE_TOOLS]"
    "{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST]{{ said(message['content']) }}[/INST]"
    "{% elif message['role'] == 'tool' %}[TOOL_RESULTS]{{ said(message['content']) }}[/TOOL_RESULTS]"
    "{% elif message['tool_calls'] %}[TOOL_CALLS][{% for call in message['tool_calls'] %}{% if not loop.first %}, "
    '{% endif %}{"name": "{{ call[\'function\'][\'name\'] }}", "arguments": '
    "{{ call['function']['arguments'] | tojson }}}{% endfor %}]<|im_end|>"
    "{% else %}{{ said(message['content']) }}<|im_end|>{% endif %}{% endfor %}"
)
LLAMA = PARTS + (
    "{% if tools %}<|im_start|>tools{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|im_end|>{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n\n{% if message['tool_calls'] %}"
    '{% for call in message[\'tool_calls\'] %}{% if not loop.first %}; {% endif %}{"name": "'
    "{{ call['function']['name'] }}\", \"parameters\": {{ call['function']['arguments'] | tojson }}}{% endfor %}"
    "{% else %}{{ said(message['content']) }}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n\n{% endif %}"
)
UNKNOWN = HERMES.replace("{{ call['function']['arguments'] | tojson }}", "{{ call['function']['arguments'] | length }}")
"""Calls whose arguments are no JSON."""

"""Chat templates that come with the lab, by name. Each is written for the lab in the shape of a
public family: ChatML (Qwen), Llama 3's headers, Gemma's turns and Mistral's instructions."""

_TOOL_CALLS = """\
{%- for call in message.tool_calls or [] %}
{{ '\\n' if message.content or not loop.first }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments if \
call.function.arguments is string else call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}"""

_TOOLS = """\
{{- 'You may call these tools:\\n' + tools | map('tojson') | join('\\n') """
CHATML = (
    """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
"""
    + _TOOLS
    + """+ '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content or '' }}
"""
    + _TOOL_CALLS
    + """
{{- '<|im_end|>' }}
{%- endgeneration %}
{%- else %}
{{- (message.content or '') + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
)

LLAMA3 = (
    """\
{{- '<|begin_of_text|>' }}
{%- if tools %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
"""
    + _TOOLS
    + """+ '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
{%- set role = 'ipython' if message.role == 'tool' else message.role %}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- (message.content or '') | trim }}
"""
    + _TOOL_CALLS
    + """
{{- '<|eot_id|>' }}
{%- endgeneration %}
{%- else %}
{{- (message.content or '') | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\
{% endif %}"""
)

GEMMA = """\
{%- set first = namespace(text='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set first.text = message.content | trim + '\\n\\n' %}
{%- elif message.role == 'assistant' %}
{{- '<start_of_turn>model\\n' }}
{%- generation %}
{%- if message.tool_calls %}
{{- raise_exception('this template has no tool calls; use chatml or llama3') }}
{%- endif %}
{{- (message.content or '') | trim + '<end_of_turn>' }}
{%- endgeneration %}
{{- '\\n' }}
{%- else %}
{{- '<start_of_turn>user\\n' + first.text + message.content | trim + '<end_of_turn>\\n' }}
{%- set first.text = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

MISTRAL = """\
{%- set first = namespace(text='') %}
{{- '<s>' }}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set first.text = message.content + '\\n\\n' %}
{%- elif message.role == 'assistant' %}
{%- generation %}
{%- if message.tool_calls %}
{{- raise_exception('this template has no tool calls; use chatml or llama3') }}
{%- endif %}
{{- ' ' + (message.content or '') + '</s>' }}
{%- endgeneration %}
{%- else %}
{{- '[INST] ' + first.text + message.content + ' [/INST]' }}
{%- set first.text = '' %}
{%- endif %}
{%- endfor %}"""

TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "mistral": MISTRAL}

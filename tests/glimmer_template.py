"""A chat template of Muse's kind, for tests: its frame is the published one, its words are ours."""

GLIMMER = r"""
{%- macro written(value) -%}
{{- value if value is string else value | tojson -}}
{%- endmacro -%}
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}
    {%- set system, rest = messages[0].content, messages[1:] -%}
{%- else -%}
    {%- set system, rest = 'Template default, ' ~ strftime_now('%d %B %Y') ~ '.', messages -%}
{%- endif -%}
{{- '<|start|>system<|message|>' ~ system ~ '\n\n' -}}
{{- 'Think: ' ~ reasoning_strength | default('high') ~ '.' -}}
{%- set ns = namespace(spaces=[]) -%}
{%- if tools -%}
    {{- '\n\nTools:' -}}
    {%- for tool in tools -%}
        {{- '\n' ~ tool.function | tojson -}}
        {%- set space = '"' ~ tool.function.name.split('.')[0] ~ '.*", ' -%}
        {%- if space not in ns.spaces -%}
            {%- set ns.spaces = ns.spaces + [space] -%}
        {%- endif -%}
    {%- endfor -%}
{%- endif -%}
{{- '\n\n# Valid recipients: "self", ' ~ ns.spaces | join ~ '"user".<|eot|>' -}}
{%- for message in rest -%}
    {%- if message.role == 'tool' -%}
        {{- '<|start|>tool ' ~ message.name ~ '<|message|><tool_output name="' -}}
        {{- message.name ~ '">\n' ~ message.content ~ '\n</tool_output><|eot|>' -}}
    {%- elif message.role == 'assistant' -%}
        {%- if message.reasoning_content -%}
            {{- '<|start|>assistant to=self<|message|>' ~ message.reasoning_content -}}
            {{- '<|eom|>' if message.content or message.tool_calls else '<|eot|>' -}}
        {%- endif -%}
        {%- if message.commentary -%}
            {{- '<|start|>assistant to=commentary<|message|>' ~ message.commentary -}}
            {{- '<|eom|>' if message.content or message.tool_calls else '<|eot|>' -}}
        {%- endif -%}
        {%- for call in message.tool_calls or [] -%}
            {{- '<|start|>assistant to=' ~ call.function.name ~ '<|message|>' -}}
            {{- '<atem:function_calls>\n<atem:invoke name="' ~ call.function.name ~ '">\n' -}}
            {%- for key, value in call.function.arguments.items() -%}
                {{- '<atem:parameter name="' ~ key ~ '">' ~ written(value) -}}
                {{- '</atem:parameter>\n' -}}
            {%- endfor -%}
            {{- '</atem:invoke>\n</atem:function_calls>' -}}
            {{- '<|eot|>' if loop.last and not message.content else '<|eom|>' -}}
        {%- endfor -%}
        {%- if message.content or not (message.reasoning_content or message.tool_calls) -%}
            {{- '<|start|>assistant to=user<|message|>' ~ message.content ~ '<|eot|>' -}}
        {%- endif -%}
    {%- else -%}
        {{- '<|start|>' ~ message.role ~ '<|message|>' ~ message.content ~ '<|eot|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start|>assistant' -}}
{%- endif -%}
"""

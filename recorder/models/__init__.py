"""What a model's own files say about it: context, layers, sizes, the form of its tool calls, its chat template.

Owns: reading config.json, safetensors headers and the chat template (`recorder.models.base_model.read_base_model`),
what cannot be a base (`recorder.models.refusals`; of images and quantised weights, `recorder.models.media` and
`recorder.models.weights`), and the configs that Hone ships (`recorder.models.shipped_configs`).
Refuses: loading weights, asking a hub, and memory (it knows shapes, not what a step holds).
"""

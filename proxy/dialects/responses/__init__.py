"""OpenAI's Responses, translated to chat completions and back."""

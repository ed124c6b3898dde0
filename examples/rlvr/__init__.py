"""Short texts under a rubric: prompts with 10 to 30 criteria each, and a judge that checks every one."""

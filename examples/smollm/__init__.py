"""The example smollm: a pretrained model that nobody made for a test learns to follow instructions that code checks."""

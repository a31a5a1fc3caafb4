"""Nouns, without input or output: names, files, write ids."""

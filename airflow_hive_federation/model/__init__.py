"""Defines Hive's types, names, files, events, views and write ids, without input or output."""

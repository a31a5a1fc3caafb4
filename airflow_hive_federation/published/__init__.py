"""The state that tasks and commands publish for people: small documents of JSON in one directory."""

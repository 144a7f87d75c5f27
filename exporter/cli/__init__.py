"""The command line: parse, one library call, a typed error to a message."""

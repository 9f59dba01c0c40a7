"""The subcommands of `cuaug`, one module each; `cli` parses arguments and imports the command."""

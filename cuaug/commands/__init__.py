"""The subcommands of `cuaug`, one module each; `parser` has their arguments, `cli` runs them."""

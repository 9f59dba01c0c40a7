"""The subcommands of `cuaug`, one module each; `cli` has their arguments and runs them.

check.py         `cuaug check`: reads and decodes every sample of a data set, and lists the damaged ones
cli.py           the `cuaug` command: its arguments; runs one of the commands, or prints an overview
demo.py          `cuaug demo`: trains a small network on pictures of shapes that it draws itself
index.py         `cuaug index` makes a data set's JPEG index ahead of the first epoch
open_paths.py    the sources of the paths that commands take: images or videos, in files, folders, lists and containers
progress_bar.py  a progress bar on a terminal, for commands
doctor/          `cuaug doctor`: checks an installation
"""

"""User interface that commands share: options, consoles, results and pictures.

The commands of several packages share them, so that an option has one name and one help text, and
all pictures have one style.
"""

"""User interface that the commands of several packages share: options, consoles, results, pictures.

So an option has one name and one help text everywhere, and all pictures have one style.
"""

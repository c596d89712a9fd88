"""The searcher: the view that answers searches."""

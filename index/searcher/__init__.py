"""Searcher: the view that answers searches.

searcher = Searcher(schema, directory)
searcher.apply(time, items)  # outputs of `index.documents.writes.document_flow(schema)`
searcher.ask({"what": "search", "collection": "documents", "q": "cat", "limit": 10})
"""

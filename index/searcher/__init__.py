"""Searcher: the view that answers searches.

Example, without the process that hosts the view:

    from driftline.index.searcher.searcher import Searcher

    searcher = Searcher(schema, directory)
    searcher.apply(time, items)  # outputs of `index.documents.writes.document_flow(schema)`
    searcher.ask({"what": "search", "collection": "documents", "q": "cat", "limit": 10})
"""
